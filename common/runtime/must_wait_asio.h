// The error of a non-blocking socket that has no data, or no room, yet.
#pragma once

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>

namespace quire {

inline bool MustWait(const boost::system::error_code& error) {
  return error == boost::asio::error::would_block || error == boost::asio::error::try_again ||
         error == boost::asio::error::interrupted;
}

}  // namespace quire
