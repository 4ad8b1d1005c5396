// The router's end of the line to `quire serve`: orders out, news in (common/serve/lines.h).
//
// Owner: main, on the event loop. `quire serve` is the parent: when it ends, this process does too,
// so a broken line is logged and nothing more.
#pragma once

#include <functional>
#include <memory>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/serve/lines.h"

namespace boost::asio {
class io_context;
}

namespace quire {

inline constexpr size_t kMaxUnsentOrderBytes = 1u << 20;

class ServeLine {
 public:
  // Takes over the descriptor, a stream socket. `heard` is called on the loop, never inside a call.
  ServeLine(boost::asio::io_context& loop, int descriptor, Logger& logger, Metrics& metrics,
            std::function<void(const serve::News&)> heard);
  ~ServeLine();

  // An order that does not fit into kMaxUnsentOrderBytes with those that wait is dropped, counted
  // and logged.
  void Send(const serve::Order& order);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with what is under way on the socket
};

}  // namespace quire
