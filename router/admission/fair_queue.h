// Requests that wait for room at a worker, and whose turn it is: by priority, then the tenant that
// has been served least for its weight, then arrival.
//
// Owner: Admission, on the router's executor. No clock, no I/O. Each model has a lane of its own,
// since room at its workers is no use to others. Within a lane every tenant has a counter of
// tokens served, divided by its weight; one that comes back from idling is lifted to the lane's
// virtual time, so that it saves up nothing (virtual token counters: Sheng et al., "Fairness in
// Serving Large Language Models", OSDI 2024).
//  1. A request is in at most one lane, once.
//  2. Order depends on what was pushed and popped alone.
//  3. A lane keeps counters of at most max_tenants tenants that have nothing queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"

namespace quire {

struct QueueEntry {
  uint64_t id = 0;
  std::string model_id;
  std::string tenant;
  uint32_t weight = 1;
  int32_t priority = 0;  // lower goes first
  uint64_t cost = 0;     // tokens that it is expected to take
  Micros since = 0;
};

class FairQueue {
 public:
  explicit FairQueue(size_t max_tenants) : max_tenants_(max_tenants) {}

  void Push(QueueEntry entry);
  // Whose turn it is; nullptr: nobody waits for this model.
  const QueueEntry* Next(const std::string& model_id) const;
  // It goes to a worker: its tenant is charged its cost.
  void Pop(uint64_t id);
  // It leaves for another reason, and costs nothing. False: it was not queued.
  bool Remove(uint64_t id);
  // What a popped request took in the end, beyond its cost; may be negative.
  void Settle(const QueueEntry& entry, double beyond);

  // The request that gives way when the queue is full and one of `tenant` and `priority` comes: of
  // the last priority the youngest of the tenant with most queued for its weight, if that one is
  // less urgent, or its tenant has the larger share, the newcomer counted. Empty: the newcomer does
  // not get in.
  std::optional<uint64_t> WhoGivesWay(const std::string& tenant, uint32_t weight,
                                      int32_t priority) const;

  size_t size() const { return where_.size(); }
  size_t QueuedBy(const std::string& tenant) const;
  std::vector<std::string> Models() const;  // with something queued, in order
  std::map<int32_t, size_t> ByPriority(const std::string& model_id) const;
  // In order of arrival.
  std::vector<const QueueEntry*> Entries(const std::string& model_id) const;
  void CheckInvariants() const;

 private:
  using Tenants = std::map<std::string, std::map<uint64_t, QueueEntry>>;  // by order of arrival
  struct Lane {
    std::map<int32_t, Tenants> classes;  // by priority; neither classes nor tenants are empty
    std::map<std::string, double> served;
    double virtual_time = 0;
    mutable const QueueEntry* next = nullptr;  // nullptr: to be found again
  };
  struct Place {
    std::string model_id;
    int32_t priority = 0;
    std::string tenant;
    uint64_t arrival = 0;
  };

  QueueEntry Take(uint64_t id);
  bool HasQueued(const Lane& lane, const std::string& tenant) const;
  void ForgetIdle(Lane& lane);

  const size_t max_tenants_;
  uint64_t arrivals_ = 0;
  std::map<std::string, Lane> lanes_;
  std::map<uint64_t, Place> where_;       // by id
  std::map<std::string, size_t> queued_;  // by tenant, over all lanes; none is 0
};

}  // namespace quire
