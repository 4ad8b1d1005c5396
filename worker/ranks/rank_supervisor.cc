// The supervising thread of a group: ranks start, are watched, are taken down, start again.
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/check.h"
#include "kernels/collectives/futex.h"
#include "worker/ranks/rank_generation.h"
#include "worker/ranks/rank_group.h"

namespace quire {
namespace {

using kernels::FutexNowMicros;

constexpr int64_t kStartLookMicros = 10'000;
constexpr int64_t kWatchLookMicros = 50'000;  // where the end of a rank is no event
constexpr int64_t kStopLookMicros = 200'000;  // that a rank has been stopped is never one
constexpr int64_t kThreadGraceMicros = 10'000'000;
constexpr int64_t kSetupMicros = 10'000'000;
constexpr int64_t kBackoffMinMicros = 200'000;
constexpr int64_t kBackoffMaxMicros = 10'000'000;
constexpr int64_t kLivedLongMicros = 60'000'000;

constexpr char kIsStopped[] = " has been stopped by a signal and does not go on";

std::string RankText(size_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

void RankGroup::Supervise() {
  pthread_setname_np(pthread_self(), "ranks");
  for (uint64_t number = 1;; ++number) {
    auto generation = std::make_shared<Generation>();
    generation->number = number;
    const absl::Status started = StartRanks(*generation);
    const int64_t start_us = FutexNowMicros();
    if (started.ok()) {
      failed_starts_ = 0;
      {
        MutexLock lock(mutex_);
        current_ = generation;
        ready_.store(number);
      }
      metrics_.ready.Set(options_.setup.size);
      if (number > 1) log_.Info("the ranks are back", {{"ranks", options_.setup.size}});
      WakeEngine();
    } else if (!stopping_.load() && number > 1) {
      Lose(*generation, RankFailure::kStart, StatusMessage(started));
    }
    if (number == 1) {
      {
        MutexLock lock(mutex_);
        first_start_ = started;
      }
      first_done_.store(1);
      first_done_.notify_all();
    }
    if (started.ok()) Watch(*generation);
    metrics_.ready.Set(0);
    TakeDown(*generation);
    if (stopping_.load() || (number == 1 && !started.ok())) return;
    SayLost();
    if (!started.ok() && ++failed_starts_ >= kMaxFailedStarts) {
      return options_.on_hopeless("the ranks cannot be started: " + StatusMessage(started));
    }
    if (!WaitBeforeRestart(started.ok() ? FutexNowMicros() - start_us : 0)) return;
    metrics_.restarts.Add();
  }
}

void RankGroup::SayLost() {
  RankFailure why;
  std::string what;
  {
    MutexLock lock(mutex_);
    why = failure_;
    what = failure_text_;
  }
  metrics_.failures[static_cast<size_t>(why)]->Add();
  const std::string devices = options_.device_note ? options_.device_note() : std::string();
  if (devices.empty()) {
    log_.Error("the ranks were lost and are started again",
               {{"why", RankFailureName(why)}, {"what", what}});
    return;
  }
  log_.Error("the ranks were lost and are started again",
             {{"why", RankFailureName(why)}, {"what", what}, {"devices", devices}});
}

absl::Status RankGroup::StartRanks(Generation& generation) {
  const size_t size = static_cast<size_t>(options_.setup.size);
  std::string error;
  generation.collectives = kernels::SharedGroup::Create(
      {options_.setup.size, static_cast<size_t>(options_.setup.arena_bytes)}, error);
  if (generation.collectives == nullptr) return absl::ResourceExhaustedError(AbslView(error));
  for (size_t rank = 0; rank < size; ++rank) {
    QUIRE_ASSIGN_OR_RETURN(auto channel, HostChannel::Create());
    generation.channels.push_back(std::move(channel));
  }
  generation.greeted.assign(size, false);
  fewest_pages_ = page_count_.load();
  device_bytes_ = device_unused_ = 0;
  std::vector<std::byte> bytes;
  for (size_t rank = 0; rank < size; ++rank) {
    HostChannel& channel = *generation.channels[rank];
    QUIRE_RETURN_IF_ERROR(host_.Start(
        {static_cast<int>(rank), &channel, generation.collectives.get(), options_.adapters.get()}));
    RankSetup setup = options_.setup;
    setup.rank = static_cast<int32_t>(rank);
    setup.limits.page_count = page_count_.load();
    EncodeRankSetup(setup, bytes);
    const ChannelState sent = channel.Send(static_cast<uint32_t>(RankMessage::kSetup), bytes, {},
                                           FutexNowMicros() + kSetupMicros);
    QUIRE_CHECK_MSG(sent == ChannelState::kOk, "a new ring has room for a setup");
  }
  return AwaitReady(generation);
}

absl::Status RankGroup::AwaitReady(Generation& generation) {
  std::vector<int64_t> heard_us(generation.channels.size(), FutexNowMicros());
  stopped_us_.assign(generation.channels.size(), 0);
  last_look_us_ = FutexNowMicros();
  while (true) {
    bool all = true;
    for (size_t rank = 0; rank < generation.channels.size(); ++rank) {
      if (generation.greeted[rank]) continue;
      HostChannel& channel = *generation.channels[rank];
      while (!generation.greeted[rank] &&
             channel.WaitForMessage(FutexNowMicros()) != ChannelState::kDeadline) {
        QUIRE_RETURN_IF_ERROR(TakeGreeting(generation, static_cast<int>(rank)));
        heard_us[rank] = FutexNowMicros();
      }
      if (FutexNowMicros() - heard_us[rank] > kRankStartSilenceMicros) {
        return absl::DeadlineExceededError(
            AbslView(RankText(rank) + " has not been heard of while it loads"));
      }
      all = all && generation.greeted[rank];
    }
    if (all) {
      page_count_.store(fewest_pages_);
      metrics_.device_memory.Set(static_cast<double>(device_bytes_));
      metrics_.device_memory_free.Set(static_cast<double>(device_unused_));
      return absl::OkStatus();
    }
    if (stopping_.load()) return absl::CancelledError("the worker leaves");
    for (size_t rank = 0; rank < generation.channels.size(); ++rank) {
      const std::optional<std::string> ended = host_.Ended(static_cast<int>(rank));
      if (!ended.has_value()) continue;
      // Its last messages may have come since the last check.
      while (generation.channels[rank]->WaitForMessage(FutexNowMicros()) == ChannelState::kOk) {
        QUIRE_RETURN_IF_ERROR(TakeGreeting(generation, static_cast<int>(rank)));
      }
      return absl::UnavailableError(AbslView(RankText(rank) + " " + *ended + " while it loaded"));
    }
    if (const int stopped = FindStopped(); stopped >= 0) {
      return absl::DeadlineExceededError(
          AbslView(RankText(static_cast<size_t>(stopped)) + kIsStopped + " while it loads"));
    }
    WaitForEvent(kStartLookMicros);
  }
}

absl::Status RankGroup::TakeGreeting(Generation& generation, int rank) {
  ChannelMessage message;
  const std::string name = RankText(static_cast<size_t>(rank));
  const ChannelState state = generation.channels[static_cast<size_t>(rank)]->Receive(
      message, FutexNowMicros() + kRankGraceMicros);
  if (state != ChannelState::kOk) {
    return absl::InternalError(AbslView(name + ": its ring is damaged"));
  }
  switch (static_cast<RankMessage>(message.kind)) {
    case RankMessage::kProgress:
      return absl::OkStatus();
    case RankMessage::kFailed:
      return absl::UnavailableError(AbslView(name + ": " + message.Text()));
    case RankMessage::kReady:
      break;
    default:
      return absl::InternalError(AbslView(name + ": its ring is damaged"));
  }
  RankReady ready;
  QUIRE_RETURN_IF_ERROR(Annotate(DecodeRankReady(message.bytes, ready), name));
  if (ready.identity != options_.identity) {
    return absl::FailedPreconditionError(
        AbslView(name + " has loaded another model or computes otherwise: " + ready.identity +
                 " is not " + options_.identity));
  }
  if (ready.page_count > 0) fewest_pages_ = std::min(fewest_pages_, ready.page_count);
  device_bytes_ += ready.device_total_bytes;
  device_unused_ += ready.device_free_bytes;
  // The planner knows how many pages there were at first, and relies on them.
  if (generation.number > 1 && fewest_pages_ < page_count_.load()) {
    return absl::ResourceExhaustedError(AbslView(
        name + " has memory for " + std::to_string(ready.page_count) + " pages, of " +
        std::to_string(page_count_.load()) + " as before: something else uses its device"));
  }
  generation.greeted[static_cast<size_t>(rank)] = true;
  return absl::OkStatus();
}

// Returns when the group has failed or is to stop.
void RankGroup::Watch(Generation& generation) {
  while (!stopping_.load() && !Failed(generation)) {
    WaitForEvent(kStopLookMicros);
    for (int rank = 0; rank < options_.setup.size; ++rank) {
      const std::optional<std::string> ended = host_.Ended(rank);
      if (!ended.has_value()) continue;
      Lose(generation, RankFailure::kDied, RankText(static_cast<size_t>(rank)) + " " + *ended);
      break;
    }
    if (const int stopped = FindStopped(); stopped >= 0) {
      Lose(generation, RankFailure::kDeadline, RankText(static_cast<size_t>(stopped)) + kIsStopped);
    }
  }
}

// Called at every check, after Ended. Time between two checks that is longer than expected is a
// standstill of this process: the signal that stopped all of them continues all of them.
int RankGroup::FindStopped() {
  const int64_t now_us = FutexNowMicros();
  const int64_t since_us = std::min(now_us - last_look_us_, 2 * kStopLookMicros);
  last_look_us_ = now_us;
  for (int rank = 0; rank < options_.setup.size; ++rank) {
    int64_t& stopped_us = stopped_us_[static_cast<size_t>(rank)];
    stopped_us = host_.Stopped(rank) ? stopped_us + since_us : 0;
    if (stopped_us > options_.step_timeout_us) return rank;
  }
  return -1;
}

// Waits until a message comes, a rank ends, or the time (−1: none) is over.
void RankGroup::WaitForEvent(int64_t timeout_us) {
  std::vector<pollfd> fds = {{event_fd_, POLLIN, 0}};
  for (int rank = 0; rank < options_.setup.size; ++rank) {
    const int fd = host_.WatchFd(rank);
    if (fd >= 0) {
      fds.push_back({fd, POLLIN, 0});
    } else if (timeout_us < 0 || timeout_us > kWatchLookMicros) {
      timeout_us = kWatchLookMicros;
    }
  }
  const int timeout_ms = timeout_us < 0 ? -1 : static_cast<int>((timeout_us + 999) / 1000);
  poll(fds.data(), fds.size(), timeout_ms);
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t got = read(event_fd_, &rung, sizeof(rung));
}

// True when all ranks have ended in time.
bool RankGroup::AwaitEnds(int64_t until_us) {
  while (true) {
    bool all = true;
    for (int rank = 0; rank < options_.setup.size; ++rank) {
      all = host_.Ended(rank).has_value() && all;
    }
    if (all) return true;
    const int64_t left_us = until_us - FutexNowMicros();
    if (left_us <= 0) return false;
    WaitForEvent(std::min(left_us, kStartLookMicros));
  }
}

void RankGroup::TakeDown(Generation& generation) {
  const bool in_peace = stopping_.load() && !Failed(generation);
  for (const auto& channel : generation.channels) {
    if (in_peace) {
      channel->Send(static_cast<uint32_t>(RankMessage::kLeave), {}, {}, FutexNowMicros());
    } else {
      channel->Close();
    }
  }
  if (!in_peace && generation.collectives != nullptr) generation.collectives->Abort();
  if (AwaitEnds(FutexNowMicros() + kRankGraceMicros)) return;
  // A rank that loads or computes for long does not check its channel: it is ended from the
  // outside, if possible.
  for (const auto& channel : generation.channels) channel->Close();
  if (generation.collectives != nullptr) generation.collectives->Abort();
  bool killed = true;
  for (int rank = 0; rank < options_.setup.size; ++rank) killed = host_.Kill(rank) && killed;
  if (AwaitEnds(FutexNowMicros() + (killed ? kRankGraceMicros : kThreadGraceMicros))) return;
  if (!killed) return options_.on_hopeless("a rank's thread does not end");
  for (int rank = 0; rank < options_.setup.size; ++rank) {
    if (host_.Ended(rank).has_value()) continue;
    log_.Error("a rank was killed and does not end: it is not waited for", {{"rank", rank}});
    host_.GiveUp(rank);
  }
}

bool RankGroup::WaitBeforeRestart(int64_t lived_us) {
  backoff_us_ = lived_us >= kLivedLongMicros || backoff_us_ == 0
                    ? kBackoffMinMicros
                    : std::min(2 * backoff_us_, kBackoffMaxMicros);
  const int64_t until_us = FutexNowMicros() + backoff_us_;
  while (!stopping_.load()) {
    const int64_t left_us = until_us - FutexNowMicros();
    if (left_us <= 0) return true;
    WaitForEvent(left_us);
  }
  return false;
}

}  // namespace quire
