// The bytes of one connection to a worker: finds its addresses, connects to the first that accepts,
// does the TLS handshake if there is one; then reads and writes without waiting.
//
// Owner: a WorkerCall, and its own pending operations (a shared_ptr in each). Event loop only.
//  1. Nothing waits on the event loop: names are looked up by the resolver's threads.
//  2. Connecting to an address, and a handshake, have a deadline each. All addresses that do not
//     answer are tried within kConnectTimeoutOfAll, before a link stops waiting for its worker's
//     Hello.
//  3. After Close nothing is called back. No callback comes from inside a call.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime/asio_executor.h"
#include "common/status.h"
#include "router/discovery/resolver.h"
#include "router/link/worker_tls.h"

namespace quire {

inline constexpr Micros kConnectTimeout = 2 * kMicrosPerSecond;  // at most, of each address
inline constexpr Micros kConnectTimeoutOfAll =
    4 * kMicrosPerSecond;  // divided between the addresses
inline constexpr Micros kWorkerHandshakeTimeout = 5 * kMicrosPerSecond;
inline constexpr size_t kMaxWorkerAddresses = 16;  // addresses of one name that are tried

// The timeout of each of this many addresses, which are at least one.
constexpr Micros ConnectTimeoutOf(size_t addresses) {
  return std::min(kConnectTimeout, kConnectTimeoutOfAll / static_cast<Micros>(addresses));
}

class WorkerSocket final : public std::enable_shared_from_this<WorkerSocket> {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnConnected() = 0;
    // UNAVAILABLE. "Connection refused" only where every address refuses: no process listens.
    virtual void OnNotConnected(const absl::Status& why) = 0;
    // What was awaited has come; not necessarily any bytes.
    virtual void OnReady() = 0;
  };
  // The result of a read or a write; kRead and kWrite: it continues once that is possible.
  enum class Outcome : uint8_t { kMoved, kRead, kWrite, kEnded, kFailed };

  // `executor` and `resolver` outlive Close.
  WorkerSocket(AsioExecutor& executor, Resolver& resolver, Events& events);

  // Once. `target` is HOST:PORT; `tls` nullptr: in the clear.
  void Connect(const std::string& target, TlsConnection tls);
  // After OnConnected.
  Outcome Read(char* at, size_t most, size_t& moved);
  Outcome Write(std::string_view bytes, size_t& moved);
  void Await(Outcome outcome);  // kRead or kWrite
  // The last bytes written are sent before the connection ends, if the peer takes them.
  void Close();

 private:
  using Socket = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;

  void Found(const absl::StatusOr<std::vector<std::string>>& addresses);
  void TryNext();
  void Tried(const Error& error);
  Error ForgetConnecting();
  void Handshake();
  void Fail(const absl::Status& why);
  void SetDeadline(Micros delay);  // 0: none
  Outcome OutcomeOf(int result);
  static Outcome OutcomeOf(const Error& error);

  AsioExecutor& executor_;
  Resolver& resolver_;
  Events* events_;  // nullptr: closed
  std::string target_;
  uint16_t port_ = 0;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints_;
  size_t next_ = 0;   // of endpoints_, to be tried
  absl::Status why_;  // of the addresses that were tried, not all of them refused
  Socket socket_;
  TlsConnection tls_{nullptr, nullptr};
  bool connected_ = false;
  bool awaits_read_ = false;
  bool awaits_write_ = false;
  bool late_ = false;  // the deadline has passed
  TimerId deadline_ = 0;
};

}  // namespace quire
