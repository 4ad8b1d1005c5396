// Fuzzes what a worker reads from a router: any bytes give a message within its limits or an error,
// and any sequence of frames leaves the sessions whole.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "worker/rpc/attach_hub.h"

namespace quire {
namespace {

constexpr DecodeLimits kLimits{1000, 4};

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckSubmit(const SubmitFrame& frame) {
  const Submit& submit = frame.submit;
  Require(frame.parts <= kMaxSubmitParts);
  Require(!submit.choices.empty() && submit.choices.size() <= kLimits.max_choices);
  Require(frame.parts > 0 || !submit.prompt_ids.empty());
  for (const TokenId id : submit.prompt_ids) Require(id >= 0 && id < kLimits.vocab_size);
  Require(ValidateSamplingParams(submit.sampling, kLimits.vocab_size).ok());
  Require(submit.salt.size() <= kMaxSaltBytes);
  Require(submit.tenant.size() <= kMaxTenantBytes);
}

void CheckFrame(std::string_view bytes) {
  const auto message = DecodeRouterFrame(bytes, kLimits);
  if (!message.ok()) return Require(!message.status().message().empty());
  if (const auto* submit = std::get_if<SubmitFrame>(&*message)) CheckSubmit(*submit);
  if (const auto* bad = std::get_if<BadSubmit>(&*message)) {
    Require(bad->refused.code != RefusalCode::kUnspecified);
    Require(!bad->refused.message.empty());
  }
}

// Answers every Submit with a token and its end, every second one late.
class AnsweringEngine final : public EngineDriver {
 public:
  bool TryPush(EngineCommand&& command) override {
    const auto* submit = std::get_if<SubmitCommand>(&command);
    if (submit == nullptr) return true;
    RouterOutput words;
    words.router = submit->router;
    words.outputs.push_back({submit->submit.key, 0, 0, 0, 0, {1}, {}, {}});
    Ended ended;
    ended.key = submit->submit.key;
    ended.last_choice = true;
    words.ended.push_back(ended);
    EngineOutput output;
    output.routers.push_back(std::move(words));
    outputs_.push_back(std::move(output));
    return true;
  }
  void TakeOutputs(std::vector<EngineOutput>& outputs) override {
    outputs = std::exchange(outputs_, {});
  }
  const StepProgress& progress() const override { return progress_; }

 private:
  std::vector<EngineOutput> outputs_;
  StepProgress progress_;
};

// The router's end: any frame that comes is within the limit.
class Listener final : public FrameStream::Receiver {
 public:
  void OnFrame(std::string_view frame) override { Require(frame.size() <= kMaxFrameBytes); }
  void OnClosed(const absl::Status&) override {}
};

// The input as frames, each behind two bytes of length, on one Attach.
void RunSession(std::string_view script) {
  VirtualWorld world(1);
  AnsweringEngine engine;
  NullLogger log;
  Metrics metrics;
  RpcMetrics rpc_metrics(metrics);
  WorkerHello hello;
  hello.vocab_size = 1000;
  hello.limits.max_model_len = 64;
  hello.limits.max_choices = 4;
  hello.features = {"choices", "resume", "snapshot"};
  Listener listener;
  std::unique_ptr<Dialer> dialer = world.MakeDialer();
  AttachHub hub(hello, world.executor(), engine, log, rpc_metrics);
  world.Listen("w", [&](std::unique_ptr<FrameStream> stream) { hub.Accept(std::move(stream)); });
  std::unique_ptr<FrameStream> stream = dialer->Dial("w");
  stream->Start(&listener);
  int count = 0;
  while (script.size() >= 2 && ++count <= 64) {
    const size_t size = static_cast<uint8_t>(script[0]) | static_cast<uint8_t>(script[1]) << 8;
    script.remove_prefix(2);
    stream->Write(std::string(script.substr(0, size)));
    script.remove_prefix(std::min(size, script.size()));
    world.RunUntil(world.clock().Now() + kMicrosPerMilli);
    if (count % 2 == 0) hub.OnEngineOutput();
  }
  world.RunUntil(world.clock().Now() + 10 * kMicrosPerSecond);
  Require(hub.attached_count() == 0);  // nothing was heard for 5 s
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  quire::CheckFrame(bytes);
  quire::RunSession(bytes);
  return 0;
}
