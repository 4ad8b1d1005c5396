// A connected socket that other code has accepted.
#pragma once

#include <sys/socket.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

namespace quire {

// Takes over the descriptor, of any address family.
inline boost::asio::generic::stream_protocol::socket AdoptSocket(boost::asio::io_context& context,
                                                                 int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    address.ss_family = AF_INET;
  }
  boost::asio::generic::stream_protocol::socket socket(context);
  boost::system::error_code ignored;
  socket.assign(boost::asio::generic::stream_protocol(address.ss_family, 0), fd, ignored);
  return socket;
}

}  // namespace quire
