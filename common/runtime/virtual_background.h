// Background work on virtual time: both halves run on the executor, the first at once, the second
// after a set delay, so that a simulation stays on one thread.
#pragma once

#include <functional>
#include <utility>

#include "common/runtime/runtime.h"

namespace quire {

class VirtualBackground final : public Background {
 public:
  VirtualBackground(Executor& executor, Micros delay) : executor_(executor), delay_(delay) {}
  bool Run(std::function<void()> work, std::function<void()> done) override {
    executor_.PostAt(executor_.clock().Now() + delay_,
                     [work = std::move(work), done = std::move(done)] {
                       work();
                       done();
                     });
    return true;
  }

 private:
  Executor& executor_;
  Micros delay_;
};

}  // namespace quire
