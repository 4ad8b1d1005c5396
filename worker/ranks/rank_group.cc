// The engine's side of a group: launch, collect, verify. The supervising thread's part is in
// rank_supervisor.cc.
#include "worker/ranks/rank_group.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "kernels/collectives/futex.h"
#include "worker/ranks/rank_generation.h"

namespace quire {
namespace {

using kernels::FutexNowMicros;

// How long a check of a channel lasts, and how much later it may end before this process counts as
// having stood still.
constexpr int64_t kLookMicros = 100'000;
constexpr int64_t kLateMicros = 50'000;
constexpr int64_t kRestOfMessageMicros = 1'000'000;

std::string RankText(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

RankGroup::RankGroup(RankGroupOptions options, RankHost& host, Logger& log, RankMetrics& metrics)
    : options_(std::move(options)),
      host_(host),
      log_(log),
      metrics_(metrics),
      expected_(options_.setup.limits, std::max(1, options_.max_in_flight)),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      page_count_(options_.setup.limits.page_count) {
  QUIRE_CHECK(options_.setup.size >= 1 && options_.max_in_flight >= 1);
  QUIRE_CHECK(options_.on_hopeless != nullptr && event_fd_ >= 0);
  metrics_.count.Set(options_.setup.size);
  device_free_.resize(static_cast<size_t>(options_.setup.size));
  adapters_.resize(static_cast<size_t>(options_.setup.limits.max_loras));
}

RankGroup::~RankGroup() {
  Stop();
  close(event_fd_);
}

void RankGroup::Stop() {
  stopping_.store(true);
  if (options_.adapters != nullptr) options_.adapters->Close();
  Ring();
  if (supervisor_.joinable()) supervisor_.join();
  ready_.store(0);
}

absl::Status RankGroup::Start() {
  QUIRE_CHECK(!supervisor_.joinable());
  supervisor_ = std::thread([this] { Supervise(); });
  first_done_.wait(0);
  MutexLock lock(mutex_);
  if (first_start_.ok()) Adopt(current_);
  return first_start_;
}

void RankGroup::SetWaker(std::function<void()> waker) {
  MutexLock lock(mutex_);
  waker_ = std::move(waker);
}

void RankGroup::Adopt(std::shared_ptr<Generation> generation) {
  mine_ = std::move(generation);
  flights_.clear();
  expected_.Clear();
  digest_ = 0;
  steps_ = 0;
}

bool RankGroup::Lost() const { return mine_ == nullptr || ready_.load() != mine_->number; }

bool RankGroup::Restore() {
  QUIRE_CHECK(Lost());
  {
    MutexLock lock(mutex_);
    if (ready_.load() == 0) return false;
    Adopt(current_);
  }
  for (size_t slot = 0; slot < adapters_.size(); ++slot) {
    if (adapters_[slot] != nullptr && !SendAdapter(static_cast<int>(slot))) break;
  }
  return true;
}

void RankGroup::SetAdapter(int slot, std::shared_ptr<const kernels::AdapterWeights> adapter) {
  adapters_[static_cast<size_t>(slot)] = std::move(adapter);
  if (!Lost()) SendAdapter(slot);  // else once they are back
}

// Between two steps. A rank that was there when it was put into the arena has packed it.
bool RankGroup::SendAdapter(int slot) {
  const auto& adapter = static_cast<const ArenaAdapter&>(*adapters_[static_cast<size_t>(slot)]);
  EncodeRankAdapterSlot({slot, adapter.place.entry, adapter.place.number}, head_);
  return SendAll(RankMessage::kAdapter, head_, {}, FutexNowMicros() + options_.step_timeout_us);
}

void RankGroup::Launch(std::span<const std::byte> packet, int64_t /*now_us*/) {
  if (Lost()) return;
  QUIRE_CHECK(static_cast<int>(flights_.size()) < options_.max_in_flight);
  Flight flight{PacketDigest(packet), options_.step_timeout_us};
  if (options_.progress != nullptr) {
    flight.limit_us = std::max(flight.limit_us, options_.progress->running_limit_us.load());
  }
  if (steps_ < kWarmUpSteps) flight.limit_us = std::max(flight.limit_us, kWarmUpWaitMicros);
  EncodeRankStep({flight.limit_us}, head_);
  const int64_t now_us = FutexNowMicros();
  if (flights_.empty()) last_end_us_ = now_us;
  if (!SendAll(RankMessage::kStep, head_, packet, now_us + flight.limit_us)) return;
  flights_.push_back(flight);
  expected_.Launch(packet);
  if (!expected_.constrained().empty()) SendMasks(now_us + flight.limit_us);
}

bool RankGroup::SendAll(RankMessage kind, std::span<const std::byte> head,
                        std::span<const std::byte> body, int64_t until_us) {
  for (int rank = 0; rank < options_.setup.size; ++rank) {
    const ChannelState sent = mine_->channels[static_cast<size_t>(rank)]->Send(
        static_cast<uint32_t>(kind), head, body, until_us);
    if (sent == ChannelState::kOk) continue;
    if (sent == ChannelState::kDeadline) {
      Lose(*mine_, RankFailure::kDeadline, RankText(rank) + " takes no packets");
    } else if (sent == ChannelState::kDamaged) {
      Lose(*mine_, RankFailure::kDamaged, RankText(rank) + ": its ring is damaged");
    }
    return false;
  }
  return true;
}

// The ranks compute the step meanwhile, and need the masks at its end.
void RankGroup::SendMasks(int64_t until_us) {
  QUIRE_CHECK_MSG(options_.masks != nullptr, "rows are constrained by nothing");
  masks_.sequences.assign(expected_.constrained().begin(), expected_.constrained().end());
  masks_.words.clear();
  size_t drafts = 0;  // before the position, of its row
  for (size_t i = 0; i < masks_.sequences.size(); ++i) {
    const uint64_t sequence = masks_.sequences[i];
    drafts = i > 0 && masks_.sequences[i - 1] == sequence ? drafts + 1 : 0;
    const std::span<const uint32_t> mask = options_.masks->MaskOf(sequence, drafts);
    masks_.words.insert(masks_.words.end(), mask.begin(), mask.end());
  }
  EncodeRankMasks(masks_, head_);
  SendAll(RankMessage::kMasks, head_, {}, until_us);
}

void RankGroup::Collect(StepResult& result) {
  if (Lost() || flights_.empty()) return;
  const Flight flight = flights_.front();
  const int64_t start_us = last_end_us_;
  for (int rank = 0; rank < options_.setup.size; ++rank) {
    if (!ReceiveResult(rank, start_us, flight, result_)) return;
    device_free_[static_cast<size_t>(rank)] = result_.device_free_bytes;
    if (rank == 0) {
      if (!expected_.Fits(result_.step)) {
        return Lose(*mine_, RankFailure::kDamaged, "rank 0: its result answers another step");
      }
      std::swap(result, result_.step);
      digest_ = ChainDigest(digest_, flight.packet_digest, result);
    }
    if (result_.digest != digest_) {
      return Lose(*mine_, RankFailure::kDigest,
                  RankText(rank) + " did not do what the others did: its digest differs");
    }
  }
  metrics_.device_memory_free.Set(std::accumulate(device_free_.begin(), device_free_.end(), 0.0));
  flights_.pop_front();
  expected_.Pop();
  ++steps_;
  last_end_us_ = FutexNowMicros();
}

bool RankGroup::ReceiveResult(int rank, int64_t start_us, const Flight& flight,
                              RankResult& result) {
  HostChannel& channel = *mine_->channels[static_cast<size_t>(rank)];
  int64_t deadline_us = start_us + flight.limit_us;
  ChannelState state = ChannelState::kDeadline;
  while (state == ChannelState::kDeadline) {
    const int64_t until_us = std::min(FutexNowMicros() + kLookMicros, deadline_us);
    state = channel.WaitForMessage(until_us);
    const int64_t late_us = FutexNowMicros() - until_us;
    if (late_us > kLateMicros) deadline_us += late_us;
    if (state == ChannelState::kDeadline && FutexNowMicros() >= deadline_us) {
      Lose(*mine_, RankFailure::kDeadline,
           RankText(rank) + " has not ended a step within " +
               std::to_string(flight.limit_us / 1000) + " ms");
      return false;
    }
  }
  if (state == ChannelState::kOk) {
    state = channel.Receive(message_, FutexNowMicros() + kRestOfMessageMicros);
  }
  if (state == ChannelState::kClosed) return false;  // the group has been lost elsewhere
  if (state != ChannelState::kOk) {
    Lose(*mine_, RankFailure::kDamaged, RankText(rank) + ": its ring is damaged");
    return false;
  }
  if (message_.kind == static_cast<uint32_t>(RankMessage::kFailed)) {
    Lose(*mine_, RankFailure::kRank, RankText(rank) + ": " + message_.Text());
    return false;
  }
  absl::Status decoded = message_.kind == static_cast<uint32_t>(RankMessage::kResult)
                             ? DecodeRankResult(message_.bytes, options_.setup.limits, result)
                             : InvalidArgument("a result was due");
  if (decoded.ok() && result.full != (rank == 0)) decoded = InvalidArgument("its result is cut");
  if (decoded.ok()) return true;
  Lose(*mine_, RankFailure::kDamaged, RankText(rank) + ": " + StatusMessage(decoded));
  return false;
}

// Reports it to the supervising thread, which takes the ranks down; waits for them then end here.
void RankGroup::Lose(Generation& generation, RankFailure why, const std::string& what) {
  {
    MutexLock lock(mutex_);
    if (failed_ >= generation.number) return;
    failed_ = generation.number;
    failure_ = why;
    failure_text_ = what;
    ready_.store(0);
  }
  // A rank that could not even be started has no collectives.
  if (generation.collectives != nullptr) generation.collectives->Abort();
  for (const auto& channel : generation.channels) channel->Close();
  Ring();
  WakeEngine();
}

bool RankGroup::Failed(const Generation& generation) const {
  MutexLock lock(mutex_);
  return failed_ >= generation.number;
}

void RankGroup::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

void RankGroup::WakeEngine() {
  std::function<void()> waker;
  {
    MutexLock lock(mutex_);
    waker = waker_;
  }
  if (waker) waker();
}

}  // namespace quire
