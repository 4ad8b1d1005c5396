// The events that wait to be polled.
//
// Any thread. The requests under way bound it: one that is no stream adds one event, and a stream
// is ahead of the polls by its window at most.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/sync.h"

namespace quire {

struct Event {
  std::string json;
  uint64_t request = 0;
  // Of a delta of a stream: who polls it has taken the outputs of this choice below `taken`.
  uint32_t choice = 0;
  uint64_t taken = 0;
};

class Outbox {
 public:
  void Push(Event event);
  // Waits for events: all that are there, up to some MiB of text. False: it is closed.
  bool Take(std::chrono::milliseconds limit, bool forever, std::vector<Event>& events);
  // Who waits returns, and nothing is taken any more.
  void Close();

 private:
  Mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire
