// The network as a process that may be stopped has it: what comes meanwhile is read when it goes
// on, and a process that is stopped, or dead, writes nothing.
//
// One thread, that of the virtual world.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/runtime/runtime.h"
#include "tests/support/fleet_sim/stoppable.h"

namespace quire::sim {

// Sees what a process says and hears on one stream, at the moment at which it does.
struct StreamTap {
  std::function<void(std::string_view)> wrote;
  std::function<void(std::string_view)> reads;
};

class StoppableStream final : public FrameStream, private FrameStream::Receiver {
 public:
  StoppableStream(std::unique_ptr<FrameStream> inner, StoppableExecutor& executor,
                  StreamTap tap = {})
      : inner_(std::move(inner)), executor_(executor), tap_(std::move(tap)) {}

  // What comes from now on is kept for a receiver that starts later.
  void Listen() {
    listening_ = true;
    inner_->Start(this);
  }
  void Start(FrameStream::Receiver* receiver) override {
    receiver_ = receiver;
    if (!listening_) Listen();
  }
  bool Write(std::string frame) override {
    if (executor_.stopped()) return true;  // last words of a process that was killed
    if (tap_.wrote) tap_.wrote(frame);
    return inner_->Write(std::move(frame));
  }
  size_t PendingBytes() const override { return inner_->PendingBytes(); }
  void Close() override { inner_->Close(); }

 private:
  void Tell(std::function<void(FrameStream::Receiver&)> word) {
    executor_.Read([alive = std::weak_ptr(alive_), this, word = std::move(word)] {
      if (!alive.expired() && receiver_ != nullptr) word(*receiver_);
    });
  }
  void OnFrame(std::string_view frame) override {
    Tell([this, bytes = std::string(frame)](FrameStream::Receiver& to) {
      if (tap_.reads) tap_.reads(bytes);
      to.OnFrame(bytes);
    });
  }
  void OnClosed(const absl::Status& status) override {
    Tell([status](FrameStream::Receiver& to) { to.OnClosed(status); });
  }
  void OnWritable() override {
    Tell([](FrameStream::Receiver& to) { to.OnWritable(); });
  }

  std::unique_ptr<FrameStream> inner_;
  StoppableExecutor& executor_;
  const StreamTap tap_;
  bool listening_ = false;
  FrameStream::Receiver* receiver_ = nullptr;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Dials for a process that may be stopped.
class StoppableDialer final : public Dialer {
 public:
  using TapMaker = std::function<StreamTap()>;
  StoppableDialer(std::unique_ptr<Dialer> world, StoppableExecutor& executor, TapMaker tap)
      : world_(std::move(world)), executor_(executor), tap_(std::move(tap)) {}

  std::unique_ptr<FrameStream> Dial(const std::string& target) override {
    return std::make_unique<StoppableStream>(world_->Dial(target), executor_, tap_());
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
  std::unique_ptr<Dialer> world_;
  StoppableExecutor& executor_;
  const TapMaker tap_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace quire::sim
