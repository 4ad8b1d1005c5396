#include "router/dispatch/waiting_line.h"

#include "common/check.h"

namespace quire {

void WaitingLine::Add(const std::string& pool, RequestNumber request, bool carry_on) {
  QUIRE_CHECK_MSG(!Contains(pool, request), "a request waits once");
  Pool& line = pools_[pool];
  (carry_on ? line.carry_ons : line.fresh).insert(request);
}

void WaitingLine::Remove(const std::string& pool, RequestNumber request) {
  const auto it = pools_.find(pool);
  QUIRE_CHECK_MSG(it != pools_.end(), "only who waits can leave");
  Pool& line = it->second;
  QUIRE_CHECK(line.carry_ons.erase(request) + line.fresh.erase(request) == 1);
  if (line.carry_ons.empty() && line.fresh.empty()) pools_.erase(it);
}

bool WaitingLine::Contains(const std::string& pool, RequestNumber request) const {
  const auto it = pools_.find(pool);
  if (it == pools_.end()) return false;
  return it->second.carry_ons.contains(request) || it->second.fresh.contains(request);
}

bool WaitingLine::Blocked(const std::string& pool) const {
  const auto it = pools_.find(pool);
  return it != pools_.end() && it->second.blocked;
}

void WaitingLine::SetBlocked(const std::string& pool, bool blocked) {
  if (const auto it = pools_.find(pool); it != pools_.end()) it->second.blocked = blocked;
}

bool WaitingLine::CarryOnsBlocked(const std::string& pool) const {
  const auto it = pools_.find(pool);
  return it != pools_.end() && it->second.carry_ons_blocked && !it->second.carry_ons.empty();
}

void WaitingLine::SetCarryOnsBlocked(const std::string& pool, bool blocked) {
  if (const auto it = pools_.find(pool); it != pools_.end()) {
    it->second.carry_ons_blocked = blocked;
  }
}

size_t WaitingLine::size() const {
  size_t total = 0;
  for (const auto& [pool, line] : pools_) total += line.carry_ons.size() + line.fresh.size();
  return total;
}

std::vector<std::string> WaitingLine::Pools() const {
  std::vector<std::string> names;
  for (const auto& [pool, line] : pools_) names.push_back(pool);
  return names;
}

std::vector<RequestNumber> WaitingLine::CarryOns(const std::string& pool) const {
  const auto it = pools_.find(pool);
  if (it == pools_.end()) return {};
  return {it->second.carry_ons.begin(), it->second.carry_ons.end()};
}

std::vector<RequestNumber> WaitingLine::Fresh(const std::string& pool) const {
  const auto it = pools_.find(pool);
  if (it == pools_.end()) return {};
  return {it->second.fresh.begin(), it->second.fresh.end()};
}

}  // namespace quire
