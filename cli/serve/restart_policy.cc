#include "cli/serve/restart_policy.h"

#include <algorithm>

namespace quire::cli {

int64_t RestartPolicy::OnDeath(int64_t now_ms) {
  while (!failures_.empty() && now_ms - failures_.front() > kFailureWindowMs) failures_.pop_front();
  failures_.push_back(now_ms);
  const int count = static_cast<int>(failures_.size());
  if (count >= kMaxFailures) return -1;
  return std::min(kFirstBackoffMs << (count - 1), kLastBackoffMs);
}

}  // namespace quire::cli
