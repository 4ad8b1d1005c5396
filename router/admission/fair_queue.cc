#include "router/admission/fair_queue.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {

void FairQueue::Push(QueueEntry entry) {
  QUIRE_CHECK(entry.weight > 0);
  Lane& lane = lanes_[entry.model_id];
  auto [served, is_new] = lane.served.try_emplace(entry.tenant, lane.virtual_time);
  if (!is_new && !HasQueued(lane, entry.tenant)) {
    served->second = std::max(served->second, lane.virtual_time);
  }
  const uint64_t arrival = ++arrivals_;
  const bool fresh =
      where_.try_emplace(entry.id, Place{entry.model_id, entry.priority, entry.tenant, arrival})
          .second;
  QUIRE_CHECK_MSG(fresh, "a request is queued once");
  ++queued_[entry.tenant];
  lane.next = nullptr;
  Tenants& tenants = lane.classes[entry.priority];
  auto& list = tenants[entry.tenant];
  list.emplace(arrival, std::move(entry));
}

const QueueEntry* FairQueue::Next(const std::string& model_id) const {
  const auto it = lanes_.find(model_id);
  if (it == lanes_.end() || it->second.classes.empty()) return nullptr;
  const Lane& lane = it->second;
  if (lane.next != nullptr) return lane.next;
  std::pair<double, uint64_t> least;  // served, then arrival
  for (const auto& [tenant, list] : lane.classes.begin()->second) {
    const std::pair<double, uint64_t> own(lane.served.at(tenant), list.begin()->first);
    if (lane.next != nullptr && own > least) continue;
    lane.next = &list.begin()->second;
    least = own;
  }
  return lane.next;
}

QueueEntry FairQueue::Take(uint64_t id) {
  const auto it = where_.find(id);
  QUIRE_CHECK_MSG(it != where_.end(), "only what is queued leaves the queue");
  const Place place = std::move(it->second);
  where_.erase(it);
  Lane& lane = lanes_.at(place.model_id);
  lane.next = nullptr;
  Tenants& tenants = lane.classes.at(place.priority);
  auto& list = tenants.at(place.tenant);
  QueueEntry entry = std::move(list.at(place.arrival));
  list.erase(place.arrival);
  if (list.empty()) tenants.erase(place.tenant);
  if (tenants.empty()) lane.classes.erase(place.priority);
  if (--queued_.at(place.tenant) == 0) queued_.erase(place.tenant);
  return entry;
}

void FairQueue::Pop(uint64_t id) {
  const QueueEntry entry = Take(id);
  Lane& lane = lanes_.at(entry.model_id);
  double& served = lane.served.at(entry.tenant);
  lane.virtual_time = std::max(lane.virtual_time, served);
  served += static_cast<double>(entry.cost) / entry.weight;
  ForgetIdle(lane);
}

bool FairQueue::Remove(uint64_t id) {
  if (!where_.contains(id)) return false;
  ForgetIdle(lanes_.at(Take(id).model_id));
  return true;
}

void FairQueue::Settle(const QueueEntry& entry, double beyond) {
  Lane& lane = lanes_[entry.model_id];
  lane.next = nullptr;
  const double change = beyond / entry.weight;
  const auto it = lane.served.find(entry.tenant);
  if (it != lane.served.end()) {
    it->second += change;
  } else if (change > 0) {  // forgotten, since it was even with the lane
    lane.served.emplace(entry.tenant, lane.virtual_time + change);
  }
  ForgetIdle(lane);
}

bool FairQueue::HasQueued(const Lane& lane, const std::string& tenant) const {
  if (!queued_.contains(tenant)) return false;
  return std::any_of(lane.classes.begin(), lane.classes.end(),
                     [&](const auto& entry) { return entry.second.contains(tenant); });
}

// A tenant that is not ahead of the lane's time would be lifted to it on return, so it is
// forgotten. If there are too many of the others, those that are ahead least are forgotten.
void FairQueue::ForgetIdle(Lane& lane) {
  if (lane.served.size() <= max_tenants_) return;
  std::vector<std::pair<double, std::string>> idle;
  for (const auto& [tenant, served] : lane.served) {
    if (!HasQueued(lane, tenant)) idle.emplace_back(served, tenant);
  }
  std::sort(idle.begin(), idle.end());
  // Drops half of them at once, so that this is rare.
  if (idle.size() > max_tenants_)
    idle.resize(idle.size() - max_tenants_ / 2);
  else
    std::erase_if(idle, [&](const auto& each) { return each.first > lane.virtual_time; });
  for (const auto& each : idle) lane.served.erase(each.second);
}

std::optional<uint64_t> FairQueue::WhoGivesWay(const std::string& tenant, uint32_t weight,
                                               int32_t priority) const {
  std::optional<int32_t> last;
  for (const auto& [model, lane] : lanes_) {
    if (lane.classes.empty()) continue;
    const int32_t lowest = lane.classes.rbegin()->first;
    last = std::max(last.value_or(lowest), lowest);
  }
  if (!last || *last < priority) return std::nullopt;
  const QueueEntry* victim = nullptr;
  double most = 0;
  uint64_t youngest = 0;
  for (const auto& [model, lane] : lanes_) {
    const auto found = lane.classes.find(*last);
    if (found == lane.classes.end()) continue;
    for (const auto& [name, list] : found->second) {
      const auto& [arrival, entry] = *list.rbegin();
      const double share = static_cast<double>(queued_.at(name)) / entry.weight;
      if (victim != nullptr && (share < most || (share == most && arrival < youngest))) continue;
      victim = &entry;
      most = share;
      youngest = arrival;
    }
  }
  if (victim == nullptr) return std::nullopt;
  const double own = static_cast<double>(QueuedBy(tenant) + 1) / weight;
  if (*last == priority && (victim->tenant == tenant || most <= own)) return std::nullopt;
  return victim->id;
}

size_t FairQueue::QueuedBy(const std::string& tenant) const {
  const auto it = queued_.find(tenant);
  return it == queued_.end() ? 0 : it->second;
}

std::vector<std::string> FairQueue::Models() const {
  std::vector<std::string> models;
  for (const auto& [model, lane] : lanes_) {
    if (!lane.classes.empty()) models.push_back(model);
  }
  return models;
}

std::map<int32_t, size_t> FairQueue::ByPriority(const std::string& model_id) const {
  std::map<int32_t, size_t> counts;
  for (const QueueEntry* entry : Entries(model_id)) ++counts[entry->priority];
  return counts;
}

std::vector<const QueueEntry*> FairQueue::Entries(const std::string& model_id) const {
  std::map<uint64_t, const QueueEntry*> sorted;
  const auto it = lanes_.find(model_id);
  if (it == lanes_.end()) return {};
  for (const auto& [priority, tenants] : it->second.classes) {
    for (const auto& [tenant, list] : tenants) {
      for (const auto& [arrival, entry] : list) sorted[arrival] = &entry;
    }
  }
  std::vector<const QueueEntry*> entries;
  entries.reserve(sorted.size());
  for (const auto& [arrival, entry] : sorted) entries.push_back(entry);
  return entries;
}

void FairQueue::CheckInvariants() const {
  size_t found = 0;
  for (const auto& [model, lane] : lanes_) {
    for (const auto& [priority, tenants] : lane.classes) {
      QUIRE_CHECK(!tenants.empty());
      for (const auto& [tenant, list] : tenants) {
        QUIRE_CHECK(!list.empty() && lane.served.contains(tenant));
        for (const auto& [arrival, entry] : list) {
          const Place& place = where_.at(entry.id);
          QUIRE_CHECK(place.arrival == arrival && place.model_id == model);
          QUIRE_CHECK(place.tenant == tenant && place.priority == priority);
          ++found;
        }
      }
    }
  }
  QUIRE_CHECK(found == where_.size());
  size_t counted = 0;
  for (const auto& [tenant, count] : queued_) counted += count;
  QUIRE_CHECK(counted == found);
}

}  // namespace quire
