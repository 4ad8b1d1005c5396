// The tenant that a request counts for, from its headers: the keys in force, replaced when their
// file changes.
//
// Owner: main; made, reloaded and destroyed on the event loop. Authenticate may be called on any
// thread.
//
// Invariants:
// 1. Without keys the router serves every client, each with a null profile.
// 2. A key file that cannot be read or is wrong changes nothing: the last good keys stay in force.
// 3. No log line and no error contains a key.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/client_address.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/watched_files.h"
#include "common/sync.h"
#include "router/core/result.h"
#include "router/keys/key_table.h"
#include "router/keys/tenant_metrics.h"
#include "router/keys/wrong_keys.h"

namespace quire {

struct KeyMetrics {
  // `prefix` begins the names: "quire_router", or that of another port with keys of its own.
  KeyMetrics(Metrics& metrics, const std::string& prefix);

  Counter& missing;    // requests refused: no credential
  Counter& unknown;    // a credential that is no key of ours
  Counter& forbidden;  // a tenant that the key may not name
  Counter& too_many;   // wrong keys of one address; also counted as unknown
  Counter& reloads;
  Counter& reload_failures;
  Gauge& keys;
};

// The headers of a request that identify its sender. Empty: the header is absent.
struct Credentials {
  std::string_view authorization;  // "Bearer …"
  std::string_view tenant;         // x-quire-tenant
  bool ambiguous = false;          // a header came more than once
  ClientAddress address = {};      // the address of the client; wrong keys are counted by it
};

class KeyRing {
 public:
  using Tenant = std::shared_ptr<const TenantProfile>;

  // nullptr: no keys are configured, everyone is served.
  KeyRing(std::shared_ptr<const KeyTable> keys, Metrics& metrics, Logger& log,
          const std::string& prefix = "quire_router");

  // Makes the keys of a file's contents.
  using ReadTable =
      std::function<absl::StatusOr<std::shared_ptr<const KeyTable>>(const std::string&)>;
  // A client that sends wrong keys faster than WrongKeys allows is refused with a time to retry; a
  // right key is admitted at any time.
  void SlowWrongKeys(const Clock& clock) { wrong_keys_ = std::make_unique<WrongKeys>(clock); }
  // Reads the file from now on.
  void Watch(const WatchedFiles::World& world, WatchedFilesOptions options, FileContents known,
             ReadTable read_table);

  bool required() const { return required_; }

  // Counts refusals. kUnauthenticated or kPermissionDenied.
  Result<Tenant> Authenticate(const Credentials& credentials);
  // The profile of work that was admitted as `then`, and continues without its key: that of a key
  // with the same rights, else one that may do no more than both a key of the tenant and `then`
  // may. nullopt: there is no key any more that may act for the tenant.
  std::optional<Tenant> TenantNow(const TenantProfile& then) const;
  // An admitted request began.
  void CountRequest(const Tenant& tenant);

 private:
  std::shared_ptr<const KeyTable> Table() const;
  ApiError UnknownKey(std::string_view key, const ClientAddress& from);
  static Result<Tenant> Delegated(const KeyTable& table, const TenantProfile& gateway,
                                  std::string_view name);
  void OnRead(absl::StatusOr<FileContents> contents);

  const bool required_;
  Logger& log_;
  KeyMetrics metrics_;
  TenantMetrics tenants_;
  mutable Mutex mutex_;
  std::shared_ptr<const KeyTable> table_ ABSL_GUARDED_BY(mutex_);
  ReadTable read_table_;
  std::string path_;
  std::unique_ptr<WatchedFiles> watch_;
  std::unique_ptr<WrongKeys> wrong_keys_;  // nullptr: they are not slowed down
};

}  // namespace quire
