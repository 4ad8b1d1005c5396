#include "router/admission/admission.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {
namespace {

const TenantProfile& ProfileOf(const std::shared_ptr<const TenantProfile>& tenant) {
  static const TenantProfile kNobody;
  return tenant == nullptr ? kNobody : *tenant;
}

uint32_t WeightOf(const TenantProfile& tenant) { return std::max<uint32_t>(1, tenant.weight); }

// A minute's worth at once, at least 1; 0 is no limit.
RateLimit PerMinute(double amount) {
  if (amount == 0) return {};
  return {.per_second = amount / 60, .burst = std::max(1.0, amount)};
}

// After this long without a request a minute's bucket is full again, or nearly.
constexpr Micros kAccountOfNoUse = 60 * kMicrosPerSecond;

uint32_t RetryAfterMs(Micros wait) {
  const Micros ms = (wait + kMicrosPerMilli - 1) / kMicrosPerMilli;
  return static_cast<uint32_t>(std::clamp<Micros>(ms, 1, 3600 * 1000));
}

}  // namespace

std::string_view RefusalCauseName(RefusalCause cause) {
  switch (cause) {
    case RefusalCause::kDraining:
      return "draining";
    case RefusalCause::kLiveRequests:
      return "live_requests";
    case RefusalCause::kQueueFull:
      return "queue_full";
    case RefusalCause::kTenantQueueFull:
      return "tenant_queue_full";
    case RefusalCause::kJournalFull:
      return "journal_full";
    case RefusalCause::kTenants:
      return "tenants";
    case RefusalCause::kPromptBytes:
      return "prompt_bytes";
    case RefusalCause::kClientMemory:
      return "client_memory";
    case RefusalCause::kRequestsPerMinute:
      return "requests_per_minute";
    case RefusalCause::kTokensPerMinute:
      return "tokens_per_minute";
    case RefusalCause::kConcurrent:
      return "concurrent";
    case RefusalCause::kTenantMemory:
      return "tenant_memory";
  }
  return "unknown";
}

Admission::Admission(const RouterLimits& limits) : limits_(limits), queue_(limits.max_tenants) {}

uint64_t Admission::refused_total(RefusalCause cause) const {
  return refused_[static_cast<size_t>(cause)];
}

Refusal Admission::Refuse(RefusalCause cause, const TenantProfile& tenant, std::string message,
                          uint32_t retry_after_ms) {
  ++refused_[static_cast<size_t>(cause)];
  const bool quota = cause >= RefusalCause::kRequestsPerMinute;
  if (quota) {
    const bool known = tenant.listed && (quota_refusals_.contains(tenant.name) ||
                                         quota_refusals_.size() < limits_.max_tenant_labels);
    ++quota_refusals_[known ? tenant.name : "other"];
  }
  return {cause,
          {quota ? ApiCode::kRateLimited : ApiCode::kUnavailable, std::move(message), "",
           retry_after_ms}};
}

Refusal Admission::RefusePrompt(const std::shared_ptr<const TenantProfile>& tenant) {
  return Refuse(RefusalCause::kPromptBytes, ProfileOf(tenant),
                "too many prompts wait to be tokenised", Pace::kLeastMs);
}

Refusal Admission::RefuseMemory(const std::shared_ptr<const TenantProfile>& tenant,
                                const MemoryAccount& account, size_t bytes) {
  const TenantProfile& profile = ProfileOf(tenant);
  const bool own = !profile.name.empty() && account.bytes() + bytes > account.limit();
  if (own) {
    return Refuse(RefusalCause::kTenantMemory, profile,
                  "this request needs " + std::to_string(bytes) +
                      " bytes of memory, and its tenant's requests hold nearly all of the " +
                      std::to_string(account.limit()) +
                      " that they may (--max-tenant-memory-bytes)",
                  Pace::kLeastMs);
  }
  return Refuse(RefusalCause::kClientMemory, profile,
                "this request needs " + std::to_string(bytes) +
                    " bytes of memory, and requests hold nearly all that they may "
                    "(--max-client-memory-bytes)",
                Pace::kLeastMs);
}

double Admission::Share(uint64_t limit) const {
  return static_cast<double>(limit) / static_cast<double>(routers_);
}

Admission::Account* Admission::AccountOf(const std::string& tenant, Micros now) {
  const auto it = accounts_.find(tenant);
  if (it != accounts_.end()) return &it->second;
  if (accounts_.size() >= limits_.max_tenants) {
    std::erase_if(accounts_, [now](const auto& entry) {
      Account account = entry.second;
      return account.live == 0 && now - account.left_at >= kAccountOfNoUse &&
             account.requests.Full(now) && account.tokens.Full(now);
    });
  }
  if (accounts_.size() >= limits_.max_tenants) return nullptr;
  return &accounts_[tenant];
}

std::optional<Refusal> Admission::CheckHouse(const TenantProfile& tenant, Micros now) {
  if (draining_) {
    return Refuse(RefusalCause::kDraining, tenant, "this router is shutting down", Pace::kLeastMs);
  }
  if (places_.size() >= limits_.max_live_requests) {
    return Refuse(RefusalCause::kLiveRequests, tenant,
                  "this router serves its limit of " + std::to_string(limits_.max_live_requests) +
                      " requests at once",
                  ends_.RetryAfterMs(1, now));
  }
  if (journal_bytes_ >= limits_.max_journal_bytes) {
    return Refuse(RefusalCause::kJournalFull, tenant,
                  "this router keeps as many tokens of running answers as it may",
                  ends_.RetryAfterMs(1, now));
  }
  return std::nullopt;
}

std::optional<Refusal> Admission::CheckQuotas(const TenantProfile& tenant, Account& account,
                                              Micros now) {
  if (tenant.max_concurrent > 0) {
    const auto share = static_cast<uint32_t>(std::max(1.0, Share(tenant.max_concurrent)));
    if (account.live >= share && !QUIRE_BUG(quota_ignored)) {
      return Refuse(RefusalCause::kConcurrent, tenant,
                    "quota: " + std::to_string(tenant.max_concurrent) +
                        " requests at once are allowed, and as many are running",
                    account.ends.RetryAfterMs(1, now));
    }
  }
  account.requests.SetLimit(PerMinute(Share(tenant.requests_per_minute)), now);
  account.tokens.SetLimit(PerMinute(Share(tenant.tokens_per_minute)), now);
  if (const Micros wait = account.requests.WaitFor(1, now); wait > 0) {
    return Refuse(
        RefusalCause::kRequestsPerMinute, tenant,
        "quota: " + std::to_string(tenant.requests_per_minute) + " requests per minute are allowed",
        RetryAfterMs(wait));
  }
  // Nothing is tokenised for tenants that have no tokens left.
  if (const Micros wait = account.tokens.WaitFor(1, now); wait > 0) {
    return Refuse(
        RefusalCause::kTokensPerMinute, tenant,
        "quota: " + std::to_string(tenant.tokens_per_minute) + " tokens per minute are allowed",
        RetryAfterMs(account.tokens.WaitFor(account.last_tokens, now)));
  }
  account.requests.Take(1, now);
  return std::nullopt;
}

std::optional<Refusal> Admission::Enter(uint64_t id, std::shared_ptr<const TenantProfile> tenant,
                                        int32_t priority, Micros now) {
  const TenantProfile& profile = ProfileOf(tenant);
  if (auto refusal = CheckHouse(profile, now)) return refusal;
  Account* account = AccountOf(profile.name, now);
  if (account == nullptr) {
    return Refuse(RefusalCause::kTenants, profile,
                  "this router serves its limit of " + std::to_string(limits_.max_tenants) +
                      " tenants at once",
                  static_cast<uint32_t>(kAccountOfNoUse / kMicrosPerMilli));
  }
  if (auto refusal = CheckQuotas(profile, *account, now)) return refusal;
  ++account->live;
  ++admitted_total_;
  Place place;
  place.tenant = std::move(tenant);
  place.priority = priority;
  QUIRE_CHECK_MSG(places_.try_emplace(id, std::move(place)).second, "a request enters once");
  return std::nullopt;
}

QueueResult Admission::MakeRoomInQueue(const Place& place, Micros now) {
  const TenantProfile& tenant = ProfileOf(place.tenant);
  QueueResult result;
  const uint32_t retry_ms = launches_.RetryAfterMs(queue_.size() + 1, now);
  const uint32_t most = limits_.max_queued_per_tenant == 0 ? limits_.max_queued_requests
                                                           : limits_.max_queued_per_tenant;
  if (queue_.QueuedBy(tenant.name) >= most) {
    result.refusal =
        Refuse(RefusalCause::kTenantQueueFull, tenant,
               std::to_string(most) + " requests of this tenant are queued already", retry_ms);
    return result;
  }
  if (queue_.size() >= limits_.max_queued_requests) {
    result.pushed_out = queue_.WhoGivesWay(tenant.name, WeightOf(tenant), place.priority);
    const Refusal full = Refuse(
        RefusalCause::kQueueFull, tenant,
        std::to_string(limits_.max_queued_requests) + " requests are queued already", retry_ms);
    if (!result.pushed_out) {
      result.refusal = full;
      return result;
    }
    queue_.Remove(*result.pushed_out);
    result.push_out = full;
  }
  return result;
}

QueueResult Admission::Queue(uint64_t id, const QueueWish& wish, Micros now) {
  Place& place = places_.at(id);
  const TenantProfile& tenant = ProfileOf(place.tenant);
  Account& account = accounts_.at(tenant.name);
  account.last_tokens = static_cast<double>(std::max<uint64_t>(1, wish.tokens));
  QueueResult result;
  if (journal_bytes_ + wish.resumed_bytes > limits_.max_journal_bytes) {
    result.refusal = Refuse(RefusalCause::kJournalFull, tenant,
                            "this router keeps as many tokens of running answers as it may",
                            ends_.RetryAfterMs(1, now));
    return result;
  }
  if (const Micros wait = account.tokens.WaitFor(static_cast<double>(wish.tokens), now); wait > 0) {
    result.refusal = Refuse(RefusalCause::kTokensPerMinute, tenant,
                            "quota: " + std::to_string(tenant.tokens_per_minute) +
                                " tokens per minute are allowed, and this request may take " +
                                std::to_string(wish.tokens),
                            RetryAfterMs(wait));
    return result;
  }
  result = MakeRoomInQueue(place, now);
  if (result.refusal) return result;
  // A request for more than a minute's worth reserves all of it.
  place.reserved = wish.tokens;
  if (account.tokens.limited()) {
    place.reserved =
        static_cast<uint64_t>(std::min(static_cast<double>(wish.tokens), account.tokens.burst()));
    account.tokens.Take(static_cast<double>(place.reserved), now);
  }
  place.entry = {id, wish.model_id, tenant.name, WeightOf(tenant), place.priority, wish.tokens,
                 now};
  queue_.Push(place.entry);
  JournalGrew(id, wish.resumed_bytes);
  return result;
}

QueueResult Admission::Hold(uint64_t id, Micros since, Micros now) {
  Place& place = places_.at(id);
  QueueResult result = MakeRoomInQueue(place, now);
  if (result.refusal) return result;
  const TenantProfile& tenant = ProfileOf(place.tenant);
  queue_.Push({id, kNoModel, tenant.name, WeightOf(tenant), place.priority, 0, since});
  place.held = true;
  PoolEmpty(kNoModel, true, since);
  return result;
}

void Admission::Release(uint64_t id) {
  Place& place = places_.at(id);
  QUIRE_CHECK_MSG(place.held, "what is released was held");
  place.held = false;
  queue_.Remove(id);
}

std::optional<uint64_t> Admission::Next(const std::string& model_id) const {
  const QueueEntry* entry = queue_.Next(model_id);
  return entry == nullptr ? std::nullopt : std::optional(entry->id);
}

void Admission::Launch(uint64_t id, Micros now) {
  Place& place = places_.at(id);
  QUIRE_CHECK_MSG(!place.launched, "a request goes to the workers once");
  queue_.Pop(id);
  place.launched = true;
  launches_.Left(now);
}

void Admission::Leave(uint64_t id, uint64_t tokens, Micros now) {
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  Place& place = it->second;
  Account& account = accounts_.at(ProfileOf(place.tenant).name);
  queue_.Remove(id);
  const double beyond = static_cast<double>(tokens) - static_cast<double>(place.reserved);
  account.tokens.Take(beyond, now);
  if (place.launched) {
    queue_.Settle(place.entry, static_cast<double>(tokens) - static_cast<double>(place.entry.cost));
    account.ends.Left(now);
    ends_.Left(now);
  }
  QUIRE_CHECK(account.live > 0 && journal_bytes_ >= place.journal_bytes);
  --account.live;
  account.left_at = now;
  journal_bytes_ -= place.journal_bytes;
  places_.erase(it);
}

void Admission::JournalGrew(uint64_t id, uint64_t bytes) {
  places_.at(id).journal_bytes += bytes;
  journal_bytes_ += bytes;
}

void Admission::PoolEmpty(const std::string& model_id, bool empty, Micros now) {
  if (empty) {
    empty_since_.try_emplace(model_id, now);
  } else {
    empty_since_.erase(model_id);
  }
}

std::vector<uint64_t> Admission::Expired(Micros now) const {
  std::vector<uint64_t> expired;
  const Micros wait = Micros{limits_.empty_pool_wait_ms} * kMicrosPerMilli;
  for (const auto& [model_id, since] : empty_since_) {
    for (const QueueEntry* entry : queue_.Entries(model_id)) {
      if (std::max(since, entry->since) + wait <= now) expired.push_back(entry->id);
    }
  }
  return expired;
}

std::optional<Micros> Admission::NextExpiry() const {
  std::optional<Micros> next;
  const Micros wait = Micros{limits_.empty_pool_wait_ms} * kMicrosPerMilli;
  for (const auto& [model_id, since] : empty_since_) {
    const std::vector<const QueueEntry*> entries = queue_.Entries(model_id);
    if (entries.empty()) continue;
    const Micros due = std::max(since, entries.front()->since) + wait;
    next = std::min(next.value_or(due), due);
  }
  return next;
}

void Admission::CheckInvariants() const {
  queue_.CheckInvariants();
  QUIRE_CHECK(places_.size() <= limits_.max_live_requests);
  QUIRE_CHECK(queue_.size() <= limits_.max_queued_requests);
  QUIRE_CHECK(accounts_.size() <= limits_.max_tenants);
  uint64_t bytes = 0;
  size_t live = 0;
  for (const auto& [id, place] : places_) bytes += place.journal_bytes;
  for (const auto& [name, account] : accounts_) live += account.live;
  QUIRE_CHECK(bytes == journal_bytes_ && live == places_.size());
}

}  // namespace quire
