// The events of a dispatcher that its owner has not drained yet, and what may add further ones.
//
// Owner: the dispatcher. Attempts that are over come before all other events, so that an event that
// ends a request is the last one that concerns it.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "router/dispatch/dispatch_types.h"

namespace quire {

// A worker's frame that is being relayed item by item.
struct Relay {
  WorkerIndex worker;
  StepFrame* frame = nullptr;
  size_t next = 0;          // items before it have been relayed
  Micros began = 0;         // when the frame came
  WorkerPhase before = {};  // the worker's phase then
};

// What follows once all events have been drained, in this order.
struct Due {
  bool snapshots = false;  // caches that have to be sent again
  bool waiting = false;    // requests that may have found a worker
  bool room = false;
};

class EventQueue {
 public:
  // `wake` drains all events before it returns.
  explicit EventQueue(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Add(AttemptOver over) { over_.push_back(std::move(over)); }
  void Add(DispatchEvent event) { events_.push_back(std::move(event)); }
  bool empty() const { return over_.empty() && events_.empty(); }
  // While events are being drained, new ones are next.
  void Wake() {
    if (std::exchange(waking_, true)) return;
    wake_();
    waking_ = false;
  }

  std::optional<DispatchEvent> Next() {
    if (!over_.empty()) return Take(over_);
    if (!events_.empty()) return Take(events_);
    return std::nullopt;
  }

 private:
  template <class Event>
  static DispatchEvent Take(std::deque<Event>& from) {
    DispatchEvent event = std::move(from.front());
    from.pop_front();
    return event;
  }

  const std::function<void()> wake_;
  bool waking_ = false;
  std::deque<AttemptOver> over_;
  std::deque<DispatchEvent> events_;
};

}  // namespace quire
