// Decides which requests may enter, and when: quotas of tenants, a bounded queue before the
// workers, and early refusals that say when to retry.
//
// Owner: the pipeline, on the router's executor. A pure state machine: no clock, no I/O; time is an
// argument. A request enters (Enter), waits for its turn (Queue), goes to a worker (Launch) and may
// leave (Leave) from any of these states; a refusal at Enter or Queue leaves no state behind.
//  1. At most max_live_requests are inside, at most max_queued_requests of them queued.
//  2. 429 says that a tenant's own quota is used up, 503 that this service lacks a resource; both
//     come with a Retry-After computed from what is known.
//  3. A quota applies to the fleet: each router grants its share, the limit divided by the number
//     of routers that the workers see. Shares of quotas that count whole requests are at least one.
//  4. Tokens are reserved at the most that a request may cost; Leave returns what the request did
//     not use.
//  5. While draining, no new request enters; requests inside continue.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/memory_account.h"
#include "common/number_table.h"
#include "common/runtime/token_bucket.h"
#include "router/admission/fair_queue.h"
#include "router/admission/pace.h"
#include "router/core/api.h"
#include "router/core/limits.h"

namespace quire {

// The lane of requests that wait for any worker at all.
inline constexpr char kNoModel[] = "";

enum class RefusalCause : uint8_t {
  kDraining,
  kLiveRequests,  // max_live_requests
  kQueueFull,     // max_queued_requests: the request did not get in, or was pushed out by another
  kTenantQueueFull,    // max_queued_per_tenant
  kJournalFull,        // max_journal_bytes
  kTenants,            // max_tenants
  kPromptBytes,        // max_waiting_prompt_bytes of the pipeline
  kClientMemory,       // what all clients hold, or what clients without a name hold
  kRequestsPerMinute,  // from here on the tenant's own quotas
  kTokensPerMinute,
  kConcurrent,
  kTenantMemory,
};
inline constexpr size_t kRefusalCauses = 12;
std::string_view RefusalCauseName(RefusalCause cause);

struct Refusal {
  RefusalCause cause = RefusalCause::kDraining;
  ApiError error;
};

// What Queue needs to know of a request.
struct QueueWish {
  std::string model_id;
  uint64_t tokens = 0;  // the most tokens of prompt and outputs that it may use, for the quota
  uint64_t resumed_bytes = 0;  // bytes of the journal that it starts with
};
struct QueueResult {
  std::optional<Refusal> refusal;
  // The request that was pushed out for this one; the caller ends it with `push_out`.
  std::optional<uint64_t> pushed_out;
  Refusal push_out;
};

class Admission {
 public:
  explicit Admission(const RouterLimits& limits);

  // `id` is new. `tenant` may be null. An empty result means that the request is inside until
  // Leave.
  std::optional<Refusal> Enter(uint64_t id, std::shared_ptr<const TenantProfile> tenant,
                               int32_t priority, Micros now);
  // At most once for each request that entered.
  QueueResult Queue(uint64_t id, const QueueWish& wish, Micros now);
  // No worker has yet reported that it serves the request's model: the request waits without a
  // model, as for an empty pool, since its arrival. Release it before it is queued again.
  QueueResult Hold(uint64_t id, Micros since, Micros now);
  void Release(uint64_t id);
  bool held(uint64_t id) const { return places_.at(id).held; }
  // The next request among those that wait for this model.
  std::optional<uint64_t> Next(const std::string& model_id) const;
  // The request goes to a worker.
  void Launch(uint64_t id, Micros now);
  // The request has ended and used this many tokens in all. Unknown ids (refused requests) are
  // ignored.
  void Leave(uint64_t id, uint64_t tokens, Micros now);

  // The journal keeps this many more bytes of accepted tokens for the request.
  void JournalGrew(uint64_t id, uint64_t bytes);
  // The state of the fleet: the number of routers that share it, at least 1; whether a model has a
  // ready worker.
  void SetRouters(uint32_t routers) { routers_ = std::max<uint32_t>(1, routers); }
  void PoolEmpty(const std::string& model_id, bool empty, Micros now);
  // The requests that have waited for empty_pool_wait_ms since their pool became empty.
  std::vector<uint64_t> Expired(Micros now) const;
  std::optional<Micros> NextExpiry() const;
  void StartDraining() { draining_ = true; }

  bool draining() const { return draining_; }
  size_t live() const { return places_.size(); }
  const FairQueue& queue() const { return queue_; }
  uint64_t journal_bytes() const { return journal_bytes_; }
  uint64_t admitted_total() const { return admitted_total_; }
  uint64_t refused_total(RefusalCause cause) const;
  // For a request that has not entered: the prompts that wait for tokenization have too many bytes.
  Refusal RefusePrompt(const std::shared_ptr<const TenantProfile>& tenant);
  // For a request that needs this many more bytes than its tenant's account, or an account above
  // it, has.
  Refusal RefuseMemory(const std::shared_ptr<const TenantProfile>& tenant,
                       const MemoryAccount& account, size_t bytes);
  // Quota refusals by tenant; at most max_tenant_labels names, those of the key file alone, the
  // rest under "other".
  const std::map<std::string, uint64_t>& quota_refusals() const { return quota_refusals_; }
  void CheckInvariants() const;

 private:
  struct Account {
    uint32_t live = 0;
    TokenBucket requests;
    TokenBucket tokens;
    double last_tokens = 1;  // tokens that a request needed: the next one may need as many
    Pace ends;
    Micros left_at = 0;
  };
  struct Place {
    std::shared_ptr<const TenantProfile> tenant;
    int32_t priority = 0;
    uint64_t reserved = 0;  // tokens, of the quota
    uint64_t journal_bytes = 0;
    QueueEntry entry;  // since it was queued
    bool launched = false;
    bool held = false;
  };

  Refusal Refuse(RefusalCause cause, const TenantProfile& tenant, std::string message,
                 uint32_t retry_after_ms);
  // Checks that the queue has a place; otherwise the result says why not.
  QueueResult MakeRoomInQueue(const Place& place, Micros now);
  std::optional<Refusal> CheckHouse(const TenantProfile& tenant, Micros now);
  std::optional<Refusal> CheckQuotas(const TenantProfile& tenant, Account& account, Micros now);
  // nullptr: there are max_tenants already, and all of them are in use.
  Account* AccountOf(const std::string& tenant, Micros now);
  double Share(uint64_t limit) const;

  const RouterLimits limits_;
  uint32_t routers_ = 1;
  bool draining_ = false;
  NumberTable<uint64_t, Place> places_;
  std::map<std::string, Account> accounts_;
  FairQueue queue_;
  Pace launches_;
  Pace ends_;
  std::map<std::string, Micros> empty_since_;  // by model
  uint64_t journal_bytes_ = 0;
  uint64_t admitted_total_ = 0;
  std::array<uint64_t, kRefusalCauses> refused_{};
  std::map<std::string, uint64_t> quota_refusals_;
};

}  // namespace quire
