// The events of a dispatcher that its owner has not drained yet, and what may add further ones.
//
// Owner: the dispatcher. Attempts that are over come before all other events, so that an event that
// ends a request is the last one that concerns it.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

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

  void Add(RequestNumber request, AttemptReport report) {
    over_.push_back({request, std::move(report)});
  }
  void Add(RequestNumber request, ApiError error) {
    errors_.push_back(std::move(error));
    events_.push_back(RequestFailed{request, &errors_.back()});
  }
  void Add(DispatchEvent event) { events_.push_back(event); }
  bool empty() const { return over_.size() == taken_over_ && next_ == events_.size(); }
  // While events are being drained, new ones are next.
  void Wake() {
    if (std::exchange(waking_, true)) return;
    wake_();
    waking_ = false;
  }

  // What the event points to stays until the next call.
  std::optional<DispatchEvent> Next() {
    for (; taken_over_ > 0; --taken_over_) over_.pop_front();
    for (; taken_errors_ > 0; --taken_errors_) errors_.pop_front();
    if (!over_.empty()) {
      taken_over_ = 1;
      return AttemptOver{over_.front().request, &over_.front().report};
    }
    if (next_ == events_.size()) return std::nullopt;
    const DispatchEvent event = events_[next_++];
    if (std::holds_alternative<RequestFailed>(event)) taken_errors_ = 1;
    if (next_ == events_.size()) {
      events_.clear();
      next_ = 0;
    }
    return event;
  }

 private:
  struct Over {
    RequestNumber request;
    AttemptReport report;
  };

  const std::function<void()> wake_;
  bool waking_ = false;
  std::deque<Over> over_;
  std::vector<DispatchEvent> events_;
  size_t next_ = 0;  // of events_
  std::deque<ApiError> errors_;
  // Those at the head of over_ and errors_ that the last event points to: 0 or 1.
  size_t taken_over_ = 0;
  size_t taken_errors_ = 0;
};

}  // namespace quire
