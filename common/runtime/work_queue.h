// Work that waits for a thread, and its order: the owner that has had the least so far, in bytes of
// input, goes first; an owner's own work keeps its order of arrival.
//
// Owner: ThreadBackground, under its lock. Pure: no thread, no clock.
//  1. At most max_queued wait in all, and max_of_owner of one owner.
//  2. Large work never takes the last free thread, so that small work of others need not wait for
//     its end.
//  3. An owner that returns from idling has earned no credit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/runtime/runtime.h"

namespace quire {

struct WorkLimits {
  size_t max_queued = 1024;
  size_t max_of_owner = 1024;
  size_t small_bytes = 64u << 10;  // work with more input is large
};

class WorkQueue {
 public:
  struct Job {
    WorkShare share;
    std::function<void()> work;
    std::function<void()> done;
  };

  explicit WorkQueue(const WorkLimits& limits) : limits_(limits) {}

  enum class Answer : uint8_t { kQueued, kFull, kOwnerFull };
  // Takes the job only where it is queued.
  Answer Push(Job&& job);
  // The next job; none where nothing waits, or only large work and `large_allowed` is false.
  std::optional<Job> Pop(bool large_allowed);
  // Removes an owner's cancelled work; for when its place is needed.
  std::deque<Job> TakeCancelled(const std::string& owner);
  bool IsLarge(const Job& job) const { return job.share.bytes > limits_.small_bytes; }
  size_t size() const { return size_; }
  size_t owners() const { return owners_.size(); }

 private:
  struct Waiting {
    uint64_t arrival = 0;
    Job job;
  };
  struct Owner {
    std::deque<Waiting> small, large;
    uint64_t had = 0;  // bytes, and the fixed cost of each piece of work
    size_t size() const { return small.size() + large.size(); }
  };

  void ForgetIdle();

  const WorkLimits limits_;
  std::map<std::string, Owner> owners_;
  uint64_t turn_ = 0;  // the count of the owner that had the last turn
  uint64_t arrivals_ = 0;
  size_t size_ = 0;
};

}  // namespace quire
