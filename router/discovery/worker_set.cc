#include "router/discovery/worker_set.h"

#include <utility>

#include "common/check.h"

namespace quire {

void WorkerSet::Named(const std::string& source, std::vector<std::string> targets) {
  by_source_[source] = std::move(targets);
  named_.clear();
  left_out_ = 0;
  for (const auto& [name, list] : by_source_) {
    for (const std::string& target : list) {
      if (named_.contains(target)) continue;
      if (named_.size() >= max_workers_) {
        ++left_out_;
      } else {
        named_.insert(target);
      }
    }
  }
  QUIRE_CHECK(named_.size() <= max_workers_);
}

WorkerSet::Changes WorkerSet::Decide(std::span<const Present> workers, Micros now) {
  Changes changes;
  std::set<std::string_view> present;
  std::map<std::string, Micros, std::less<>> idle_since;
  for (const Present& worker : workers) {
    QUIRE_CHECK_MSG(present.insert(worker.target).second, "a worker is there once");
    if (IsNamed(worker.target) || worker.busy) continue;
    const auto since = idle_since_.find(worker.target);
    const Micros idle = since == idle_since_.end() ? now : since->second;
    if (!worker.attached || now - idle >= kForgetAfter) {
      changes.remove.emplace_back(worker.target);
    } else {
      idle_since.emplace(worker.target, idle);
    }
  }
  idle_since_ = std::move(idle_since);
  // Leaving workers make room first.
  size_t room = max_workers_ + changes.remove.size() - std::min(max_workers_, workers.size());
  for (const std::string& target : named_) {
    if (room == 0) break;
    if (present.contains(target)) continue;
    changes.add.push_back(target);
    --room;
  }
  return changes;
}

}  // namespace quire
