// A worker's rpc side on virtual time, with an engine that does as the test says, and a bare
// router.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "quire/v1/worker.pb.h"
#include "worker/rpc/attach_hub.h"

namespace quire {

namespace pb = ::quire::worker::v1;

// Takes commands until told that its queue is full; says what the test gives it.
class ScriptedEngine final : public EngineDriver {
 public:
  bool TryPush(EngineCommand&& command) override {
    if (full) return false;
    commands.push_back(std::move(command));
    return true;
  }
  void TakeOutputs(std::vector<EngineOutput>& taken) override {
    taken = std::exchange(outputs, {});
  }
  const StepProgress& progress() const override { return pulse; }

  template <class Command>
  std::vector<Command> Taken() const {
    std::vector<Command> found;
    for (const EngineCommand& command : commands) {
      if (const auto* match = std::get_if<Command>(&command)) found.push_back(*match);
    }
    return found;
  }

  bool full = false;
  std::vector<EngineCommand> commands;
  std::vector<EngineOutput> outputs;
  StepProgress pulse;
};

// The router's end of a stream: keeps every frame with the time of its arrival.
class BareRouter final : public FrameStream::Receiver {
 public:
  BareRouter(VirtualWorld& world, Dialer& dialer) : world_(world), stream_(dialer.Dial("worker")) {
    stream_->Start(this);
  }
  void OnFrame(std::string_view bytes) override {
    pb::WorkerFrame frame;
    ASSERT_LE(bytes.size(), kMaxFrameBytes);
    ASSERT_TRUE(frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    frames.push_back(std::move(frame));
    times.push_back(world_.clock().Now());
  }
  void OnClosed(const absl::Status& status) override {
    closed = true;
    close_status = status;
  }
  void Send(const pb::RouterFrame& frame) { stream_->Write(frame.SerializeAsString()); }
  void SendBytes(std::string bytes) { stream_->Write(std::move(bytes)); }
  void Close() { stream_->Close(); }
  void Drop() { stream_.reset(); }
  void Heartbeat(uint64_t sent_at_ms) {
    pb::RouterFrame frame;
    frame.mutable_heartbeat()->set_sent_at_ms(sent_at_ms);
    Send(frame);
  }

  bool Refused() const { return !frames.empty() && frames.back().has_refused(); }
  std::string RefusedMessage() const { return Refused() ? frames.back().refused().message() : ""; }
  std::vector<pb::Refused> Refusals() const {
    std::vector<pb::Refused> all;
    for (const auto& frame : frames) {
      all.insert(all.end(), frame.step().refused().begin(), frame.step().refused().end());
    }
    return all;
  }
  std::vector<pb::Output> Outputs() const {
    std::vector<pb::Output> all;
    for (const auto& frame : frames) {
      all.insert(all.end(), frame.step().outputs().begin(), frame.step().outputs().end());
    }
    return all;
  }
  std::vector<pb::Ended> Ends() const {
    std::vector<pb::Ended> all;
    for (const auto& frame : frames) {
      all.insert(all.end(), frame.step().ended().begin(), frame.step().ended().end());
    }
    return all;
  }

  std::vector<pb::WorkerFrame> frames;
  std::vector<Micros> times;
  bool closed = false;
  absl::Status close_status;

 private:
  VirtualWorld& world_;
  std::unique_ptr<FrameStream> stream_;
};

inline WorkerHello TestHello() {
  WorkerHello hello;
  hello.worker_id = "w";
  hello.epoch = Epoch(7);
  hello.model_id = "model";
  hello.numerics_id = "numerics";
  hello.block_size = 16;
  hello.vocab_size = 1000;
  hello.limits.max_model_len = 200;
  hello.limits.max_choices = 2;
  hello.features = {"choices"};
  return hello;
}

inline pb::RouterFrame HelloFrame(uint64_t instance, uint64_t attach_number) {
  pb::RouterFrame frame;
  pb::RouterHello* hello = frame.mutable_hello();
  hello->set_router_instance(instance);
  hello->set_attach_number(attach_number);
  hello->set_protocol_min(1);
  hello->set_protocol_max(1);
  return frame;
}

inline pb::RouterFrame SubmitFrameOf(uint64_t request, uint64_t submit_number) {
  pb::RouterFrame frame;
  pb::Submit* submit = frame.mutable_submit();
  submit->set_request_number(request);
  submit->set_attempt(1);
  submit->set_submit_number(submit_number);
  submit->add_prompt_ids(5);
  submit->add_choices();
  submit->mutable_sampling()->set_max_tokens(4);
  return frame;
}

inline AttemptKey KeyOf(uint64_t request) { return {RequestNumber(request), Attempt(1)}; }

class RpcTest : public testing::Test {
 protected:
  explicit RpcTest(WorkerHello hello = TestHello())
      : hub(std::move(hello), world.executor(), engine, log, rpc_metrics) {
    world.Listen("worker", [this](std::unique_ptr<FrameStream> s) { hub.Accept(std::move(s)); });
  }

  void Run(Micros duration) { world.RunUntil(world.clock().Now() + duration); }
  std::unique_ptr<BareRouter> Dial() { return std::make_unique<BareRouter>(world, *dialer); }
  std::unique_ptr<BareRouter> Attach(uint64_t instance, uint64_t number) {
    auto router = Dial();
    Run(kMicrosPerMilli);
    router->Send(HelloFrame(instance, number));
    Run(kMicrosPerMilli);
    return router;
  }
  // As Run, with a heartbeat of `router` every second.
  void RunWithHeartbeats(BareRouter& router, Micros duration) {
    const Micros end = world.clock().Now() + duration;
    while (world.clock().Now() < end) {
      router.Heartbeat(1);
      world.RunUntil(std::min(end, world.clock().Now() + kMicrosPerSecond));
    }
  }
  void Say(EngineOutput output) {
    engine.outputs.push_back(std::move(output));
    world.executor().Post([this] { hub.OnEngineOutput(); });
    Run(kMicrosPerMilli);
  }
  static EngineOutput Tokens(uint64_t instance, uint64_t request, std::vector<TokenId> ids,
                             uint64_t first_index = 0) {
    EngineOutput output;
    output.routers.emplace_back().router = RouterInstance(instance);
    output.routers[0].outputs.push_back(
        {KeyOf(request), 0, 0, 0, first_index, {ids.begin(), ids.end()}, {}, {}});
    return output;
  }

  VirtualWorld world{1};
  std::unique_ptr<Dialer> dialer = world.MakeDialer();
  ScriptedEngine engine;
  NullLogger log;
  Metrics metrics;
  RpcMetrics rpc_metrics{metrics};
  AttachHub hub;
};

}  // namespace quire
