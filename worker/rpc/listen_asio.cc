#include "worker/rpc/listen_asio.h"

#include "common/host_port.h"

namespace quire {

namespace asio = boost::asio;

absl::Status ListenOn(asio::ip::tcp::acceptor& acceptor, const std::string& host, int port,
                      int backlog) {
  boost::system::error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) return InvalidArgument(host + " is not an IP address, as in 127.0.0.1");
  const asio::ip::tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(backlog, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(AbslView("cannot listen on " +
                                         JoinHostPort(host, static_cast<uint32_t>(port)) + ": " +
                                         error.message()));
}

}  // namespace quire
