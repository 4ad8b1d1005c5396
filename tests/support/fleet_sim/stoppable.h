// A process that can be stopped and go on, as SIGSTOP and SIGCONT do: while it is stopped its
// timers do not run and nothing is read; when it goes on, what was due comes late, timers first.
//
// One thread, that of the virtual world.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/runtime/runtime.h"

namespace quire::sim {

class StoppableExecutor final : public Executor {
 public:
  explicit StoppableExecutor(Executor& world) : world_(world) {}

  void Post(std::function<void()> work) override { PostAt(clock().Now(), std::move(work)); }
  TimerId PostAt(Micros due, std::function<void()> work) override {
    const TimerId id = ++last_;
    State& state = *state_;
    state.waiting[id] = std::move(work);
    world_.PostAt(due, [weak = std::weak_ptr(state_), id] {
      const auto alive = weak.lock();
      if (alive == nullptr || !alive->waiting.contains(id)) return;
      if (alive->stopped) {
        alive->due.push_back(id);
        return;
      }
      alive->Run(id);
    });
    return id;
  }
  bool Cancel(TimerId timer) override { return state_->waiting.erase(timer) > 0; }
  const Clock& clock() const override { return world_.clock(); }

  bool stopped() const { return state_->stopped; }
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
      work();
    }
  }
  // Something from the network: now, or when the process goes on.
  void Read(std::function<void()> work) {
    if (!state_->stopped && state_->unread.empty()) return work();
    state_->unread.push_back(std::move(work));
  }

 private:
  struct State {
    void Run(TimerId id) {
      const auto node = waiting.extract(id);
      node.mapped()();
    }
    std::map<TimerId, std::function<void()>> waiting;
    std::deque<TimerId> due;
    std::deque<std::function<void()>> unread;
    bool stopped = false;
  };

  Executor& world_;
  TimerId last_ = 0;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Dials for a process that may be stopped.
class StoppableDialer final : public Dialer {
 public:
  StoppableDialer(std::unique_ptr<Dialer> world, StoppableExecutor& executor)
      : world_(std::move(world)), executor_(executor) {}

  std::unique_ptr<FrameStream> Dial(const std::string& target) override {
    return std::make_unique<Stream>(world_->Dial(target), executor_);
  }
  void FetchTextBundle(const std::string& target, const std::string& model_id, size_t max_bytes,
                       std::function<void(absl::StatusOr<std::string>)> done) override {
    // The process may be killed before the answer comes.
    world_->FetchTextBundle(target, model_id, max_bytes,
                            [this, alive = std::weak_ptr(alive_),
                             done = std::move(done)](absl::StatusOr<std::string> bundle) {
                              if (alive.expired()) return;
                              executor_.Read([done, bundle = std::move(bundle)] { done(bundle); });
                            });
  }

 private:
  class Stream final : public FrameStream, private FrameStream::Receiver {
   public:
    Stream(std::unique_ptr<FrameStream> inner, StoppableExecutor& executor)
        : inner_(std::move(inner)), executor_(executor) {}
    void Start(FrameStream::Receiver* receiver) override {
      receiver_ = receiver;
      inner_->Start(this);
    }
    bool Write(std::string frame) override { return inner_->Write(std::move(frame)); }
    size_t PendingBytes() const override { return inner_->PendingBytes(); }
    void Close() override { inner_->Close(); }

   private:
    void Tell(std::function<void(FrameStream::Receiver&)> word) {
      executor_.Read([alive = std::weak_ptr(alive_), this, word = std::move(word)] {
        if (!alive.expired()) word(*receiver_);
      });
    }
    void OnFrame(std::string_view frame) override {
      Tell([bytes = std::string(frame)](FrameStream::Receiver& to) { to.OnFrame(bytes); });
    }
    void OnClosed(const absl::Status& status) override {
      Tell([status](FrameStream::Receiver& to) { to.OnClosed(status); });
    }
    void OnWritable() override {
      Tell([](FrameStream::Receiver& to) { to.OnWritable(); });
    }

    std::unique_ptr<FrameStream> inner_;
    StoppableExecutor& executor_;
    FrameStream::Receiver* receiver_ = nullptr;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  };

  std::unique_ptr<Dialer> world_;
  StoppableExecutor& executor_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace quire::sim
