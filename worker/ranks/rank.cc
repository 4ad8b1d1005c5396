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

// A rank between its setup and its end.
class Rank {
 public:
  Rank(HostChannel& channel, const GroupOpener& open_group, const RankBuilder& build)
      : channel_(channel), open_group_(open_group), build_(build) {}

  absl::Status Serve() {
    ChannelMessage message;
    while (true) {
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
    QUIRE_ASSIGN_OR_RETURN(program_, build_(setup_, *communicator_, progress));
    EncodeRankReady(program_->Describe(), bytes_);
    return Tell(RankMessage::kReady);
  }

  absl::Status Step(std::span<const std::byte> bytes) {
    int64_t wait_micros = 0;
    if (program_ == nullptr || bytes.size() < kRankStepBytes) {
      return absl::InternalError("the line from the engine is damaged");
    }
    std::memcpy(&wait_micros, bytes.data(), sizeof(wait_micros));
    communicator_->SetDeadline(std::clamp<int64_t>(wait_micros, 1, int64_t{1} << 50));
    const std::span<const std::byte> packet = bytes.subspan(kRankStepBytes);
    const absl::Status ran = program_->Run(packet, result_.step);
    if (communicator_->failure() != kernels::CommFailure::kNone) {
      return absl::UnavailableError(AbslView(std::string("a collective failed: ") +
                                             kernels::CommFailureName(communicator_->failure())));
    }
    QUIRE_RETURN_IF_ERROR(ran);
    result_.digest = ChainDigest(result_.digest, PacketDigest(packet), result_.step);
    result_.full = setup_.rank == 0;
    EncodeRankResult(result_, bytes_);
    return Tell(RankMessage::kResult);
  }

  absl::Status Tell(RankMessage kind) {
    const ChannelState state = channel_.Send(static_cast<uint32_t>(kind), bytes_, {}, kForever);
    // Closed: the engine has given the group up, which the next Receive finds out.
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
    // Until it has been read, so that the engine learns the reason before the rank's end.
    const int64_t until_us = Soon();
    ChannelMessage unread;
    while (channel_.Receive(unread, until_us) == ChannelState::kOk) continue;
    return why;
  }

  static int64_t Soon() { return kernels::FutexNowMicros() + kLastWordMicros; }

  HostChannel& channel_;
  const GroupOpener& open_group_;
  const RankBuilder& build_;
  RankSetup setup_;
  kernels::SharedGroup* group_ = nullptr;  // the opener's
  std::unique_ptr<kernels::Communicator> communicator_;
  std::unique_ptr<RankProgram> program_;
  RankResult result_;
  std::vector<std::byte> bytes_;  // reused
};

}  // namespace

absl::Status ServeRank(HostChannel& channel, const GroupOpener& open_group,
                       const RankBuilder& build) {
  return Rank(channel, open_group, build).Serve();
}

}  // namespace quire
