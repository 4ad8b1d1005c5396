#include "router/keys/key_ring.h"

#include <algorithm>

#include "common/check.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

constexpr std::string_view kBearer = "bearer ";

Counter& Refusals(Metrics& metrics, const std::string& prefix, const char* reason) {
  return metrics.AddCounter({prefix + "_auth_refusals_total",
                             "Requests refused because of their credentials.",
                             {{"reason", reason}}});
}

// The key of "Bearer KEY"; empty when the header has another form.
std::string_view KeyOf(std::string_view authorization) {
  if (authorization.size() <= kBearer.size()) return {};
  for (size_t i = 0; i < kBearer.size(); ++i) {
    const char c = authorization[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    if (lower != kBearer[i]) return {};
  }
  authorization.remove_prefix(kBearer.size());
  const size_t begin = authorization.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  authorization.remove_prefix(begin);
  return authorization.substr(0, authorization.find_last_not_of(' ') + 1);
}

ApiError Forbidden(std::string message) {
  return {ApiCode::kPermissionDenied, std::move(message), "x-quire-tenant", 0};
}

// Both must permit what is done in the tenant's name.
void Narrow(const TenantProfile& gateway, TenantProfile& tenant) {
  if (!gateway.models.empty()) {
    std::vector<std::string> both;
    for (const std::string& model : gateway.models) {
      if (MayUse(&tenant, model)) both.push_back(model);
    }
    // An empty list would allow all; no served name is empty.
    if (both.empty()) both.emplace_back();
    tenant.models = std::move(both);
  }
  if (gateway.highest_priority) {
    tenant.highest_priority = std::max(*gateway.highest_priority,
                                       tenant.highest_priority.value_or(*gateway.highest_priority));
  }
}

}  // namespace

KeyMetrics::KeyMetrics(Metrics& m, const std::string& prefix)
    : missing(Refusals(m, prefix, "missing")),
      unknown(Refusals(m, prefix, "unknown")),
      forbidden(Refusals(m, prefix, "forbidden")),
      too_many(Refusals(m, prefix, "too_many")),
      reloads(m.AddCounter(
          {prefix + "_api_key_reloads_total", "Times that a changed key file came in force."})),
      reload_failures(m.AddCounter({prefix + "_api_key_reload_failures_total",
                                    "Times that a key file was unreadable or wrong, so that the "
                                    "last good keys went on to hold."})),
      keys(m.AddGauge({prefix + "_api_keys", "API keys in force."})) {}

KeyRing::KeyRing(std::shared_ptr<const KeyTable> keys, Metrics& metrics, Logger& log,
                 const std::string& prefix)
    : required_(keys != nullptr),
      log_(log),
      metrics_(metrics, prefix),
      tenants_(metrics, prefix),
      table_(std::move(keys)) {
  const std::shared_ptr<const KeyTable> table = Table();
  if (!table) return;
  tenants_.Know(table->tenants());
  metrics_.keys.Set(static_cast<double>(table->size()));
}

void KeyRing::Watch(const WatchedFiles::World& world, WatchedFilesOptions options,
                    FileContents known, ReadTable read_table) {
  QUIRE_CHECK(required_ && options.paths.size() == 1);
  path_ = options.paths[0];
  read_table_ = std::move(read_table);
  watch_ = std::make_unique<WatchedFiles>(
      world, std::move(options), std::move(known),
      [this](absl::StatusOr<FileContents> contents) { OnRead(std::move(contents)); });
}

void KeyRing::OnRead(absl::StatusOr<FileContents> contents) {
  absl::StatusOr<std::shared_ptr<const KeyTable>> table;
  if (contents.ok()) {
    table = read_table_(contents->front());
  } else {
    table = contents.status();
  }
  if (!table.ok()) {
    metrics_.reload_failures.Add();
    log_.Error("the key file cannot be used; the last good keys hold",
               {{"file", path_}, {"error", StatusMessage(table.status())}});
    return;
  }
  tenants_.Know((*table)->tenants());
  metrics_.reloads.Add();
  metrics_.keys.Set(static_cast<double>((*table)->size()));
  log_.Info("the key file has changed and is in force",
            {{"file", path_}, {"keys", (*table)->size()}});
  MutexLock lock(mutex_);
  table_ = *std::move(table);
}

std::shared_ptr<const KeyTable> KeyRing::Table() const {
  MutexLock lock(mutex_);
  return table_;
}

Result<KeyRing::Tenant> KeyRing::Authenticate(const Credentials& credentials) {
  if (!required_) return Tenant();
  if (credentials.ambiguous) {
    metrics_.unknown.Add();
    return ApiError{ApiCode::kUnauthenticated,
                    "more than one Authorization or x-quire-tenant header was sent; send one", "",
                    0};
  }
  const std::string_view key = KeyOf(credentials.authorization);
  if (key.empty()) {
    metrics_.missing.Add();
    return ApiError{ApiCode::kUnauthenticated,
                    "an API key is needed; send it as Authorization: Bearer KEY", "", 0};
  }
  const std::shared_ptr<const KeyTable> table = Table();
  Tenant tenant = table->Find(key);
  if (!tenant) {
    return UnknownKey(key, credentials.address);
  }
  if (!credentials.tenant.empty() && credentials.tenant != tenant->name) {
    Result<Tenant> named = Delegated(*table, *tenant, credentials.tenant);
    if (!named.ok()) {
      metrics_.forbidden.Add();
      return named;
    }
    tenant = named.value();
  }
  return tenant;
}

ApiError KeyRing::UnknownKey(std::string_view key, const ClientAddress& from) {
  metrics_.unknown.Add();
  if (wrong_keys_ != nullptr && !wrong_keys_->Take(from)) {
    metrics_.too_many.Add();
    return ApiError{ApiCode::kRateLimited, "too many wrong API keys were sent from here", "",
                    kWrongKeysRetryMs};
  }
  if (key.size() < kMinApiKeyBytes) {
    return ApiError{ApiCode::kUnauthenticated,
                    "the API key that was sent is shorter than " + std::to_string(kMinApiKeyBytes) +
                        " bytes, as no key here is; `openssl rand -hex 24` makes a good one",
                    "", 0};
  }
  return ApiError{ApiCode::kUnauthenticated, "the API key that was sent is not known here", "", 0};
}

std::optional<KeyRing::Tenant> KeyRing::TenantNow(const TenantProfile& then) const {
  if (!required_) return then.name.empty() ? std::optional<Tenant>(Tenant()) : std::nullopt;
  const std::shared_ptr<const KeyTable> table = Table();
  Tenant narrowed;
  for (const Tenant& key : table->Profiles()) {
    Tenant now = key;
    if (key->name != then.name) {
      const Result<Tenant> named = Delegated(*table, *key, then.name);
      if (!named.ok()) continue;
      now = named.value();
    }
    if (now->models == then.models && now->highest_priority == then.highest_priority) return now;
    if (narrowed != nullptr) continue;
    auto both = std::make_shared<TenantProfile>(*now);
    Narrow(then, *both);
    narrowed = std::move(both);
  }
  if (narrowed == nullptr) return std::nullopt;
  return narrowed;
}

void KeyRing::CountRequest(const Tenant& tenant) {
  if (tenant) tenants_.Count(tenant->name);
}

Result<KeyRing::Tenant> KeyRing::Delegated(const KeyTable& table, const TenantProfile& gateway,
                                           std::string_view name) {
  if (!gateway.delegate) {
    return Forbidden("x-quire-tenant: this API key may not act for another tenant");
  }
  if (!IsTenantName(name)) {
    return Forbidden("x-quire-tenant: must be 1 to " + std::to_string(kMaxTenantNameBytes) +
                     " letters, digits, '-', '_' or '.'");
  }
  const Tenant known = table.FindTenant(name);
  auto tenant = std::make_shared<TenantProfile>(known ? *known : gateway);
  tenant->delegate = false;
  if (known) {
    Narrow(gateway, *tenant);
  } else {
    tenant->name = std::string(name);
    tenant->listed = false;
    tenant->cache_group.clear();
  }
  return Tenant(std::move(tenant));
}

}  // namespace quire
