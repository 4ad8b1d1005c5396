// A process of the simulation: it has a clock of its own, and can be stopped and go on as SIGSTOP
// and SIGCONT do. While it is stopped its timers do not run, nothing is read and nothing is
// written; when it goes on, what was due comes late, timers first.
//
// One thread, that of the virtual world.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/runtime/runtime.h"

namespace quire::sim {

class ProcessClock final : public Clock {
 public:
  explicit ProcessClock(const Clock& world) : world_(world) {}
  Micros Now() const override { return world_.Now() + ahead_; }
  int64_t UnixSeconds() const override { return world_.UnixSeconds() + wall_ahead_; }
  void Leap(Micros by) { ahead_ += by; }
  void SetWall(int64_t by_seconds) { wall_ahead_ += by_seconds; }
  Micros ahead() const { return ahead_; }

 private:
  const Clock& world_;
  Micros ahead_ = 0;  // never shrinks: a monotonic clock does not run backwards
  int64_t wall_ahead_ = 0;
};

class StoppableExecutor final : public Executor {
 public:
  explicit StoppableExecutor(Executor& world)
      : world_(world), clock_(world.clock()), state_(std::make_shared<State>()) {}
  ~StoppableExecutor() override {
    for (const auto& [id, timer] : state_->waiting) world_.Cancel(timer.in_world);
  }

  void Post(std::function<void()> work) override { PostAt(clock_.Now(), std::move(work)); }
  TimerId PostAt(Micros due, std::function<void()> work) override {
    const TimerId id = ++last_;
    Timer& timer = state_->waiting[id];
    timer.due = std::max(due, clock_.Now());
    timer.work = std::move(work);
    Arm(id, timer);
    return id;
  }
  bool Cancel(TimerId timer) override {
    const auto it = state_->waiting.find(timer);
    if (it == state_->waiting.end()) return false;
    world_.Cancel(it->second.in_world);
    state_->waiting.erase(it);
    return true;
  }
  const Clock& clock() const override { return clock_; }

  bool stopped() const { return state_->stopped; }
  // How often the process has done something.
  uint64_t turns() const { return state_->turns; }
  void Stop() { state_->stopped = true; }
  void GoOn() {
    const std::shared_ptr<State> state = state_;
    state->stopped = false;
    while (!state->due.empty()) {
      const TimerId id = state->due.front();
      state->due.pop_front();
      if (state->waiting.contains(id)) state->Run(id);
    }
    while (!state->unread.empty()) {
      const std::function<void()> work = std::move(state->unread.front());
      state->unread.pop_front();
      ++state->turns;
      work();
    }
  }
  // The monotonic clock jumps forward, as after the move of a virtual machine: what is due by then
  // is late, though nothing else had time to happen.
  void Leap(Micros by) {
    clock_.Leap(by);
    std::vector<std::pair<Micros, TimerId>> order;
    for (const auto& [id, timer] : state_->waiting) {
      if (world_.Cancel(timer.in_world)) order.emplace_back(timer.due, id);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [due, id] : order) Arm(id, state_->waiting.at(id));
  }
  // Somebody sets the time of day.
  void SetWall(int64_t by_seconds) { clock_.SetWall(by_seconds); }
  // Something from the network: now, or when the process goes on.
  void Read(std::function<void()> work) {
    if (!state_->stopped && state_->unread.empty()) {
      ++state_->turns;
      return work();
    }
    state_->unread.push_back(std::move(work));
  }

 private:
  struct Timer {
    Micros due = 0;  // by the clock of this process
    std::function<void()> work;
    TimerId in_world = 0;
  };
  struct State {
    void Run(TimerId id) {
      ++turns;
      const auto node = waiting.extract(id);
      node.mapped().work();
    }
    std::map<TimerId, Timer> waiting;
    std::deque<TimerId> due;
    std::deque<std::function<void()>> unread;
    bool stopped = false;
    uint64_t turns = 0;
  };
  void Arm(TimerId id, Timer& timer) {
    timer.in_world = world_.PostAt(timer.due - clock_.ahead(), [weak = std::weak_ptr(state_), id] {
      const auto alive = weak.lock();
      if (alive == nullptr || !alive->waiting.contains(id)) return;
      if (!alive->stopped) return alive->Run(id);
      alive->due.push_back(id);
    });
  }

  Executor& world_;
  ProcessClock clock_;
  TimerId last_ = 0;
  std::shared_ptr<State> state_;
};

}  // namespace quire::sim
