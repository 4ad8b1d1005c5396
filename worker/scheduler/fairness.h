// What each tenant has had of this worker, so that none with work falls below its share: a virtual
// time per tenant that grows with tokens prefilled, tokens decoded and cache held.
//
// Source: the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models"
// (OSDI 2024), with held cache added. Owner: Scheduler. Pure.
//
// Invariants:
// 1. The tenant with work that has been served least goes first; one that comes (or returns) starts
//    no lower than the least served tenant with work, so that idleness earns no credit.
// 2. Service that an idle tenant received ahead of the others is remembered, for kMaxIdleTenants
//    tenants.
// 3. Tenants are visited in the order in which they came: decisions do not depend on names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct Sequence;

inline constexpr size_t kMaxIdleTenants = 1024;

// Service is counted in 1/1024 of a prefill token.
inline constexpr int64_t kPrefillTokenService = 1024;
inline constexpr int64_t kDecodeTokenService =
    2048;                                        // a step reads the weights for only a few of them
inline constexpr int64_t kHeldTokenService = 1;  // per token of cache and step

// A tenant that waits below its share of rows or cache takes from one above it only when it is
// behind by this much, and by kRecomputeFactor times what the victim must recompute: moving work
// costs at most a quarter of what it balances.
inline constexpr int64_t kFairnessSlack = 4096 * kPrefillTokenService;
inline constexpr int64_t kRecomputeFactor = 4;

struct Tenant {
  std::string name;
  int64_t served = 0;
  int64_t held_tokens = 0;         // cache room of its sequences
  int32_t running = 0;             // rows
  int32_t rows_wanted = 0;         // sequences that wait for one
  int32_t sequences = 0;           // in any of the scheduler's lists
  bool busy = false;               // it has rows or waits for one
  std::vector<Sequence*> waiting;  // sorted by RunsBefore; those that need prefill
};

class FairShare {
 public:
  // The tenant of a sequence that enters the scheduler; each Join is matched by one Leave.
  Tenant& Join(std::string_view name);
  void Leave(Tenant& tenant);

  // After the number of its rows, or of the rows it waits for, has changed.
  void Update(Tenant& tenant) { SetBusy(tenant, tenant.running > 0 || tenant.rows_wanted > 0); }
  // At the start of a pass: charges for held cache, and moves the least service of busy tenants
  // forward.
  void StartPass();

  // The tenants with sequences here.
  const std::vector<Tenant*>& present() const { return present_; }
  int32_t busy_count() const { return busy_count_; }
  size_t idle_count() const { return tenants_.size() - present_.size(); }

  void CheckInvariants() const;

 private:
  void SetBusy(Tenant& tenant, bool busy);
  void ForgetIdle();

  std::map<std::string, std::unique_ptr<Tenant>, std::less<>> tenants_;
  std::vector<Tenant*> present_;
  int32_t busy_count_ = 0;
  int64_t floor_ = 0;  // the least service of the busy tenants so far
};

}  // namespace quire
