#include "worker/ranks/rank.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/collectives/futex.h"

namespace quire {
namespace {

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
constexpr int64_t kLastWordMicros = 1'000'000;
// How long a check for the next packet lasts before the device is polled again.
constexpr int64_t kLookAtDeviceMicros = 50;
constexpr int64_t kLookAtMemoryMicros = 1'000'000;

// The masks that the engine sends behind the packet of a step: they come while the step computes.
// The engine sends no later packet before the step's result.
class ReceivedMasks final : public StepMasks {
 public:
  explicit ReceivedMasks(HostChannel& channel) : channel_(channel) {}

  // A step begins, and waits for its masks at most until then.
  void Expect(const StepLimits& limits, int64_t until_us) {
    limits_ = limits;
    until_us_ = until_us;
  }
  void Take(std::span<const std::byte> bytes) {
    failed_ = failed_ || !DecodeRankMasks(bytes, limits_, masks_).ok();
  }
  std::span<const uint32_t> MaskOf(uint64_t sequence, size_t drafts) override {
    if (Find(sequence) == masks_.sequences.size() && !failed_) Receive();
    const size_t index = Find(sequence) + drafts;
    if (failed_ || index >= masks_.sequences.size() || masks_.sequences[index] != sequence) {
      failed_ = true;
      return {};
    }
    used_ = true;
    return masks_.Of(index);
  }
  // A step has ended: masks that it has taken are of no use to the next one.
  void EndStep() {
    if (std::exchange(used_, false)) masks_.sequences.clear();
  }
  bool failed() const { return failed_; }

 private:
  size_t Find(uint64_t sequence) const {
    const auto found = std::find(masks_.sequences.begin(), masks_.sequences.end(), sequence);
    return static_cast<size_t>(found - masks_.sequences.begin());
  }
  void Receive() {
    const ChannelState state = channel_.Receive(message_, until_us_);
    const bool masks = message_.kind == static_cast<uint32_t>(RankMessage::kMasks);
    if (state == ChannelState::kOk && masks) return Take(message_.bytes);
    failed_ = true;
  }

  HostChannel& channel_;
  StepLimits limits_;
  int64_t until_us_ = 0;
  ChannelMessage message_;
  RankMasks masks_;
  bool used_ = false;
  bool failed_ = false;
};

// A rank between its setup and its end.
class Rank {
 public:
  Rank(HostChannel& channel, const GroupOpener& open_group, const RankBuilder& build,
       std::unique_ptr<AdapterArena> adapters)
      : channel_(channel),
        masks_(channel),
        open_group_(open_group),
        build_(build),
        adapters_(std::move(adapters)) {}

  absl::Status Serve() {
    ChannelMessage message;
    while (true) {
      if (const absl::Status told = TellResults(); !told.ok()) return Fail(told);
      const ChannelState state = channel_.Receive(message, kForever);
      if (state == ChannelState::kClosed) return absl::OkStatus();
      absl::Status done = absl::InternalError("the line from the engine is damaged");
      if (state == ChannelState::kOk) {
        if (message.kind == static_cast<uint32_t>(RankMessage::kLeave)) return absl::OkStatus();
        done = Take(message);
      }
      if (!done.ok()) return Fail(done);
    }
  }

 private:
  absl::Status Take(const ChannelMessage& message) {
    switch (static_cast<RankMessage>(message.kind)) {
      case RankMessage::kSetup:
        return SetUp(message.bytes);
      case RankMessage::kStep:
        return Step(message.bytes);
      case RankMessage::kMasks:
        masks_.Take(message.bytes);
        return Checked(absl::OkStatus());
      case RankMessage::kAdapter:
        return SetAdapter(message.bytes);
      default:
        return absl::InternalError("the line from the engine is damaged");
    }
  }

  absl::Status SetUp(std::span<const std::byte> bytes) {
    if (program_ != nullptr) return absl::InternalError("a rank is set up once");
    QUIRE_RETURN_IF_ERROR(DecodeRankSetup(bytes, setup_));
    QUIRE_ASSIGN_OR_RETURN(group_, open_group_(setup_));
    communicator_ = group_->Join(setup_.rank);
    communicator_->SetDeadline(kWarmUpWaitMicros);
    const RankProgress progress = [this] {
      channel_.Send(static_cast<uint32_t>(RankMessage::kProgress), {}, {}, Soon());
    };
    const bool fits = adapters_ == nullptr || setup_.rank < adapters_->shape().ranks;
    if (!fits) return absl::InternalError("the memory of adapters is another group's");
    QUIRE_ASSIGN_OR_RETURN(program_,
                           build_({setup_, *communicator_, masks_, adapters_.get()}, progress));
    EncodeRankReady(program_->Describe(), bytes_);
    return Tell(RankMessage::kReady);
  }

  absl::Status Step(std::span<const std::byte> bytes) {
    int64_t wait_micros = 0;
    if (program_ == nullptr || bytes.size() < kRankStepBytes) {
      return absl::InternalError("the line from the engine is damaged");
    }
    std::memcpy(&wait_micros, bytes.data(), sizeof(wait_micros));
    wait_micros = std::clamp<int64_t>(wait_micros, 1, int64_t{1} << 50);
    communicator_->SetDeadline(wait_micros);
    masks_.Expect(setup_.limits, kernels::FutexNowMicros() + wait_micros);
    const std::span<const std::byte> packet = bytes.subspan(kRankStepBytes);
    flights_.push_back(PacketDigest(packet));
    if (program_->MaxInFlight() > 1) return Checked(program_->Launch(packet));
    QUIRE_RETURN_IF_ERROR(Checked(program_->Run(packet, result_.step)));
    return TellResult();
  }

  absl::Status SetAdapter(std::span<const std::byte> bytes) {
    RankAdapterSlot slot;
    QUIRE_RETURN_IF_ERROR(DecodeRankAdapterSlot(bytes, setup_.limits, slot));
    if (program_ == nullptr || adapters_ == nullptr || slot.entry >= adapters_->shape().entries) {
      return absl::InternalError("the line from the engine is damaged");
    }
    return program_->SetAdapter(slot);
  }

  // Collects the steps in flight until the engine has sent something that comes first: the next
  // packet, while there is room for it, or the order to leave.
  absl::Status TellResults() {
    while (!flights_.empty()) {
      const bool full = static_cast<int>(flights_.size()) == program_->MaxInFlight();
      while (!full && !program_->Ready()) {
        const int64_t until_us = kernels::FutexNowMicros() + kLookAtDeviceMicros;
        if (channel_.WaitForMessage(until_us) != ChannelState::kDeadline) return absl::OkStatus();
      }
      QUIRE_RETURN_IF_ERROR(Checked(program_->Collect(result_.step)));
      QUIRE_RETURN_IF_ERROR(TellResult());
    }
    return absl::OkStatus();
  }

  absl::Status TellResult() {
    masks_.EndStep();
    result_.digest = ChainDigest(result_.digest, flights_.front(), result_.step);
    flights_.erase(flights_.begin());  // there are one or two
    result_.full = setup_.rank == 0;
    LookAtMemory();
    EncodeRankResult(result_, bytes_);
    return Tell(RankMessage::kResult);
  }

  void LookAtMemory() {
    const int64_t now_us = kernels::FutexNowMicros();
    if (now_us < next_look_us_) return;
    next_look_us_ = now_us + kLookAtMemoryMicros;
    result_.device_free_bytes = std::max<int64_t>(0, program_->DeviceFreeBytes());
  }

  // The result of a part of a step; a failed collective takes precedence.
  absl::Status Checked(const absl::Status& status) const {
    if (communicator_ == nullptr || communicator_->failure() == kernels::CommFailure::kNone) {
      if (!masks_.failed()) return status;
      return absl::InternalError("the masks of a step did not come, or are damaged");
    }
    return absl::UnavailableError(AbslView(std::string("a collective failed: ") +
                                           kernels::CommFailureName(communicator_->failure())));
  }

  absl::Status Tell(RankMessage kind) {
    const ChannelState state = channel_.Send(static_cast<uint32_t>(kind), bytes_, {}, kForever);
    // Closed: the engine has given the group up, which the next Receive detects.
    if (state == ChannelState::kDamaged) {
      return absl::InternalError("the line to the engine is damaged");
    }
    return absl::OkStatus();
  }

  absl::Status Fail(const absl::Status& why) {
    if (group_ != nullptr) group_->Abort();
    const std::string text = StatusMessage(why).substr(0, kMaxRankTextBytes);
    channel_.Send(static_cast<uint32_t>(RankMessage::kFailed), std::as_bytes(std::span(text)), {},
                  Soon());
    // Waits until it has been read, so that the engine learns the reason before the rank's end.
    const int64_t until_us = Soon();
    ChannelMessage unread;
    while (channel_.Receive(unread, until_us) == ChannelState::kOk) continue;
    return why;
  }

  static int64_t Soon() { return kernels::FutexNowMicros() + kLastWordMicros; }

  HostChannel& channel_;
  ReceivedMasks masks_;
  const GroupOpener& open_group_;
  const RankBuilder& build_;
  const std::unique_ptr<AdapterArena> adapters_;  // null: none are served
  RankSetup setup_;
  kernels::SharedGroup* group_ = nullptr;  // the opener's
  std::unique_ptr<kernels::Communicator> communicator_;
  std::unique_ptr<RankProgram> program_;
  std::vector<uint64_t> flights_;  // digests of the packets in flight
  RankResult result_;
  int64_t next_look_us_ = 0;      // at the device's memory
  std::vector<std::byte> bytes_;  // reused
};

}  // namespace

absl::Status ServeRank(HostChannel& channel, const GroupOpener& open_group,
                       const RankBuilder& build, int adapters_fd) {
  std::unique_ptr<AdapterArena> adapters;
  if (adapters_fd >= 0) {
    QUIRE_ASSIGN_OR_RETURN(adapters, AdapterArena::Open(adapters_fd));
  }
  return Rank(channel, open_group, build, std::move(adapters)).Serve();
}

}  // namespace quire
