#include "common/runtime/work_queue.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr uint64_t kBytesOfAnyWork = 4096;  // the fixed cost of starting it
constexpr size_t kMaxIdleOwners = 4096;

}  // namespace

WorkQueue::Answer WorkQueue::Push(Job&& job) {
  if (size_ >= limits_.max_queued) return Answer::kFull;
  const auto [it, is_new] = owners_.try_emplace(job.share.owner);
  Owner& owner = it->second;
  if (owner.size() >= limits_.max_of_owner) return Answer::kOwnerFull;
  if (owner.size() == 0) owner.had = std::max(owner.had, turn_);
  std::deque<Waiting>& list = IsLarge(job) ? owner.large : owner.small;
  list.push_back({++arrivals_, std::move(job)});
  ++size_;
  if (is_new) ForgetIdle();
  return Answer::kQueued;
}

std::optional<WorkQueue::Job> WorkQueue::Pop(bool large_allowed) {
  const auto may = [large_allowed](const Owner& owner) {
    return !owner.small.empty() || (large_allowed && !owner.large.empty());
  };
  auto next = owners_.end();
  for (auto it = owners_.begin(); it != owners_.end(); ++it) {
    if (!may(it->second)) continue;
    if (next == owners_.end() || it->second.had < next->second.had) next = it;
  }
  if (next == owners_.end()) return std::nullopt;
  Owner& owner = next->second;
  const bool large =
      large_allowed && !owner.large.empty() &&
      (owner.small.empty() || owner.large.front().arrival < owner.small.front().arrival);
  std::deque<Waiting>& list = large ? owner.large : owner.small;
  Job job = std::move(list.front().job);
  list.pop_front();
  --size_;
  turn_ = std::max(turn_, owner.had);
  owner.had += kBytesOfAnyWork + job.share.bytes;
  return job;
}

std::deque<WorkQueue::Job> WorkQueue::TakeCancelled(const std::string& owner) {
  std::deque<Job> taken;
  const auto it = owners_.find(owner);
  if (it == owners_.end()) return taken;
  for (std::deque<Waiting>* list : {&it->second.small, &it->second.large}) {
    std::deque<Waiting> kept;
    for (Waiting& waiting : *list) {
      const auto& cancelled = waiting.job.share.cancelled;
      if (cancelled != nullptr && *cancelled) {
        taken.push_back(std::move(waiting.job));
      } else {
        kept.push_back(std::move(waiting));
      }
    }
    list->swap(kept);
  }
  size_ -= taken.size();
  return taken;
}

// Owners without waiting work; those that have had more come last.
void WorkQueue::ForgetIdle() {
  std::erase_if(owners_, [this](const auto& entry) {
    return entry.second.size() == 0 && entry.second.had <= turn_;
  });
  if (owners_.size() <= limits_.max_queued + kMaxIdleOwners) return;
  std::erase_if(owners_, [](const auto& entry) { return entry.second.size() == 0; });
}

}  // namespace quire
