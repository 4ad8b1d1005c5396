// Orders about adapters that are under way at workers: each goes to several, and ends when all have
// answered, are lost, or have taken too long.
//
// Owner: the dispatcher, on the router's executor.
//  1. An order ends once, later than its Begin, unless it is forgotten before.
//  2. At most kMaxAdapterOrders are under way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/wire/adapter_orders.h"
#include "router/core/api.h"
#include "router/core/limits.h"
#include "router/dispatch/dispatch_types.h"

namespace quire {

inline constexpr size_t kMaxAdapterOrders = 64;
inline constexpr Micros kAdapterOrderTimeout = 60 * kMicrosPerSecond;

// Nothing: every worker has done it.
using AdapterOrderDone = std::function<void(std::optional<ApiError>)>;

class AdapterOrders {
 public:
  // Writes an order to a worker whose link is up.
  using Send = std::function<void(WorkerIndex, const AdapterOrder&)>;
  AdapterOrders(Executor& executor, Send send, DispatchCounters& counters)
      : executor_(executor), send_(std::move(send)), counters_(counters) {}
  ~AdapterOrders();

  struct Target {
    WorkerIndex worker;
    std::string name;         // for messages
    std::string cannot = {};  // why it is not asked; empty: it is
  };
  // Sends the order to each worker that can be asked, with its number filled in. 0: the limit is
  // reached. Requires: a target.
  uint64_t Begin(AdapterOrder order, const std::vector<Target>& targets, AdapterOrderDone done);
  // No one waits for it any more; the workers continue. Unknown numbers are ignored.
  void Forget(uint64_t number);

  void Answered(WorkerIndex worker, const AdapterResult& result);
  void Lost(WorkerIndex worker);

  size_t size() const { return live_.size(); }

 private:
  struct Answer {
    WorkerIndex worker;
    std::string name;
    std::optional<AdapterResult> result;  // none: it is waited for
  };
  struct Live {
    AdapterOrder order;
    std::vector<Answer> answers;
    AdapterOrderDone done;
    TimerId timer = 0;
  };
  void EndIfComplete(uint64_t number);
  void End(uint64_t number);
  static std::optional<ApiError> Outcome(const Live& live);

  Executor& executor_;
  const Send send_;
  DispatchCounters& counters_;
  std::map<uint64_t, Live> live_;
  uint64_t last_number_ = 0;
};

}  // namespace quire
