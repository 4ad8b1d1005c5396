// A listening socket of the worker.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include <string>

#include "common/status.h"

namespace quire {

// `host` is an IP address; port 0 lets the system choose. UNAVAILABLE or INVALID_ARGUMENT when it
// cannot listen on the address, also when another socket listens on the port.
absl::Status ListenOn(boost::asio::ip::tcp::acceptor& acceptor, const std::string& host, int port,
                      int backlog);

}  // namespace quire
