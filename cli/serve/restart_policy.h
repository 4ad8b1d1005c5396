// When a dead child is started again, and when it is given up. Pure: time comes in as an argument.
#pragma once

#include <cstdint>
#include <deque>

namespace quire::cli {

inline constexpr int64_t kFirstBackoffMs = 200;
inline constexpr int64_t kLastBackoffMs = 10'000;
inline constexpr int kMaxFailures = 5;
inline constexpr int64_t kFailureWindowMs = 60'000;

class RestartPolicy {
 public:
  // The child died at `now_ms`. Returns how long to wait before it is started again, or −1: it has
  // failed kMaxFailures times within kFailureWindowMs and is given up. The wait doubles with every
  // failure in the window.
  int64_t OnDeath(int64_t now_ms);

 private:
  std::deque<int64_t> failures_;  // times, within the window
};

}  // namespace quire::cli
