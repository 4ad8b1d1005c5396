// Requests that wait for room at a worker, ordered by priority, then by the tenant that has been
// served least for its weight, then by arrival.
//
// Owner: Admission, on the router's executor. No clock, no I/O. Each model has its own lane, since
// room at its workers is no use to other models. Within a lane every tenant has a counter of tokens
// served, divided by its weight. The counter of a tenant that returns from idling is raised to the
// lane's virtual time, so that idling earns no credit (virtual token counters: Sheng et al.,
// "Fairness in Serving Large Language Models", OSDI 2024).
//  1. A request is in at most one lane, once.
//  2. Order depends only on what was pushed and popped.
//  3. A lane keeps counters of at most max_tenants tenants that have nothing queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
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
  // The next request; nullptr when no request waits for this model.
  const QueueEntry* Next(const std::string& model_id) const;
  // The request goes to a worker: its tenant is charged its cost.
  void Pop(uint64_t id);
  // The request leaves for another reason and costs nothing. False: it was not queued.
  bool Remove(uint64_t id);
  // What a popped request used in the end, beyond its cost; may be negative.
  void Settle(const QueueEntry& entry, double beyond);

  // The request that is pushed out when the queue is full and one of `tenant` and `priority`
  // arrives. It has the last priority, and among these it is the youngest of the tenant with most
  // queued for its weight. It is pushed out if it is less urgent than the new one, or if its tenant
  // has the larger share with the new one counted. Empty: the new one does not get in.
  std::optional<uint64_t> WhoGivesWay(const std::string& tenant, uint32_t weight,
                                      int32_t priority) const;

  size_t size() const { return where_.size(); }
  size_t QueuedBy(const std::string& tenant) const;
  std::vector<std::string> Models() const;  // tenants with queued requests, in order
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
    mutable const QueueEntry* next = nullptr;  // nullptr: must be looked up again
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
  absl::flat_hash_map<uint64_t, Place> where_;  // by id; never iterated
  std::map<std::string, size_t> queued_;        // by tenant, over all lanes; none is 0
};

}  // namespace quire
