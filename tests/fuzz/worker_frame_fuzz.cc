// Fuzzes what a worker may send: the decoder keeps its promises, and a dispatcher with requests
// under way survives any sequence of frames with its invariants whole.
//
// The input is one frame; then it is read again as frames that each follow two bytes of length.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "common/runtime/virtual_runtime.h"
#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "quire/v1/worker.pb.h"
#include "router/dispatch/dispatcher.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

void Require(bool condition) {
  if (!condition) std::abort();
}

void HoldToPromises(std::string_view frame) {
  const auto message = DecodeWorkerFrame(frame);
  if (!message.ok()) return;
  if (const auto* hello = std::get_if<WorkerHello>(&*message)) {
    Require(!hello->model_id.empty() && !hello->served_names.empty());
    Require(hello->text_bundle_sha256.size() == 32);
    Require(hello->limits.max_model_len > 0 && hello->vocab_size > 0);
    Require(hello->vocab_size <= kMaxServedVocab);
  }
  if (const auto* step = std::get_if<StepFrame>(&*message)) {
    for (const Output& output : step->outputs) {
      Require(!output.ids.empty() && output.choice < kMaxChoices);
      Require(output.logprobs.empty() || output.logprobs.size() == output.ids.size());
      Require(output.top.empty() || output.top.size() == output.ids.size());
      for (const TokenId id : output.ids) Require(id >= 0);
      for (const TopLogprobs& top : output.top) Require(top.ids.size() == top.logprobs.size());
    }
    for (const Ended& ended : step->ended) {
      Require(ended.choice < kMaxChoices && ended.reason != EndReason::kUnspecified);
    }
  }
}

// Hands its receiver to the fuzzer, as long as the link keeps the stream.
class FuzzDialer final : public Dialer {
 public:
  struct Stream final : FrameStream {
    explicit Stream(FuzzDialer& d) : dialer(d) {}
    ~Stream() override { dialer.receiver = nullptr; }
    void Start(Receiver* receiver) override { dialer.receiver = receiver; }
    bool Write(std::string) override { return true; }
    size_t PendingBytes() const override { return 0; }
    void Close() override {}
    FuzzDialer& dialer;
  };
  std::unique_ptr<FrameStream> Dial(const std::string&) override {
    return std::make_unique<Stream>(*this);
  }
  void FetchTextBundle(const std::string&, const std::string&, size_t,
                       std::function<void(absl::StatusOr<std::string>)>) override {}
  FrameStream::Receiver* receiver = nullptr;
};

std::string Opening() {
  pb::WorkerFrame frame;
  pb::WorkerHello* hello = frame.mutable_hello();
  hello->set_protocol(1);
  hello->set_model_id("m");
  hello->add_served_names("m");
  hello->add_features("resume");
  hello->set_text_bundle_sha256(std::string(32, 'x'));
  hello->set_vocab_size(1000);
  hello->mutable_limits()->set_max_model_len(2048);
  hello->mutable_limits()->set_max_waiting_requests(8);
  return frame.SerializeAsString();
}

std::string ReadyStep() {
  pb::WorkerFrame frame;
  frame.mutable_step()->set_frame_seq(1);
  frame.mutable_step()->set_state(pb::READY);
  return frame.SerializeAsString();
}

void Drive(std::string_view input) {
  VirtualWorld world(1);
  FuzzDialer dialer;
  DispatchOptions options;
  options.instance = RouterInstance(1);
  options.policy = &Policies().front();
  Dispatcher dispatcher(options, dialer, world.executor(), world.rng(), [&dispatcher] {
    while (dispatcher.NextEvent()) {
    }
  });
  Require(dispatcher.AddWorker("w:1").ok());
  dialer.receiver->OnFrame(Opening());
  dispatcher.fleet().TextReady("m");
  dialer.receiver->OnFrame(ReadyStep());
  for (uint64_t number = 1; number <= 3; ++number) {
    DispatchRequest request;
    request.number = RequestNumber(number);
    request.submit.prompt_ids = {1, 2};
    request.submit.choices.resize(number);
    request.submit.sampling.max_tokens = 10;
    request.submit.model_id = "m";
    request.router_is_taker = number == 2;
    dispatcher.Start(std::move(request));
  }
  const auto feed = [&](std::string_view frame) {
    if (dialer.receiver != nullptr) dialer.receiver->OnFrame(frame);
    dispatcher.CheckInvariants();
  };
  feed(input);
  for (size_t at = 0; at + 2 <= input.size();) {
    const size_t length = static_cast<unsigned char>(input[at]) |
                          static_cast<size_t>(static_cast<unsigned char>(input[at + 1])) << 8;
    feed(input.substr(at + 2, length));
    at += 2 + length;
  }
  world.RunUntil(world.clock().Now() + 3 * kMicrosPerSecond);
  dispatcher.CheckInvariants();
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  quire::HoldToPromises(input);
  quire::Drive(input);
  return 0;
}
