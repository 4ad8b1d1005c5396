// One timer of an object: setting it again replaces the earlier setting, and it ends with its
// owner.
//
// Owner: an object on its executor, which outlives it; the executor's thread only.
//  1. At most one call is due; it happens unless Stop, Set or the end of the timer comes before.
//  2. The work may end the timer.
#pragma once

#include <functional>
#include <utility>

#include "common/runtime/runtime.h"

namespace quire {

class Timer {
 public:
  explicit Timer(Executor& executor) : executor_(executor) {}
  ~Timer() { Stop(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Set(Micros due, std::function<void()> work) {
    Stop();
    due_ = due;
    work_ = std::move(work);
    id_ = executor_.PostAt(due, [this] {
      id_ = 0;
      const auto run = std::exchange(work_, nullptr);
      run();
    });
  }
  void SetIn(Micros delay, std::function<void()> work) {
    Set(executor_.clock().Now() + delay, std::move(work));
  }
  void Stop() {
    if (id_ != 0) executor_.Cancel(std::exchange(id_, 0));
  }
  bool running() const { return id_ != 0; }
  Micros due() const { return due_; }  // of the last Set

 private:
  Executor& executor_;
  std::function<void()> work_;
  Micros due_ = 0;
  TimerId id_ = 0;
};

}  // namespace quire
