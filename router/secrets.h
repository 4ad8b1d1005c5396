// What the router reads from files before it listens, and again when they change: API keys, the
// salt key, the admin token, certificates.
//
// Called by the router process, once, on the event loop's thread. A later fault changes nothing and
// is logged once. Errors are INVALID_ARGUMENT, name the flag and the file, and never contain a
// secret.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/log/log.h"
#include "common/runtime/runtime.h"
#include "router/config.h"
#include "router/front/tls_identity.h"
#include "router/keys/key_ring.h"
#include "router/link/worker_tls.h"

namespace quire {

// The keys of --api-key-file, which are watched, and of --api-key.
absl::StatusOr<std::unique_ptr<KeyRing>> MakeKeyRing(const RouterConfig& config,
                                                     const WatchedFiles::World& world,
                                                     Metrics& metrics, Logger& log);

// The certificates that are shown to workers and required of them, replaced when the files change:
// an existing link keeps what it was dialled with. Owner: the router process, event loop only;
// outlives the dialer.
class WorkerTlsFiles {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerTlsFiles>> Make(const RouterConfig& config,
                                                              const WatchedFiles::World& world,
                                                              Metrics& metrics, Logger& log);
  const WorkerTls* current() const { return tls_ ? &*tls_ : nullptr; }  // nullptr: in the clear

 private:
  WorkerTlsFiles(Metrics& metrics, Logger& log);
  absl::Status Take(const FileContents& contents);
  void OnRead(const absl::StatusOr<FileContents>& contents);

  Logger& log_;
  Counter& reloads_;
  Counter& reload_failures_;
  Gauge& end_;
  std::string name_;
  std::optional<WorkerTls> tls_;
  std::unique_ptr<WatchedFiles> watch_;
};

// Who may use the admin port: the holder of the token in --admin-token-file, which is watched.
absl::StatusOr<std::unique_ptr<KeyRing>> MakeAdminRing(const RouterConfig& config,
                                                       const WatchedFiles::World& world,
                                                       Metrics& metrics, Logger& log);

// The secret of --salt-key-file, replaced when the file changes; a random one where API keys are
// given without it; otherwise empty, which means the public key. Owner: the router process, event
// loop only.
class SaltKey {
 public:
  static absl::StatusOr<std::unique_ptr<SaltKey>> Make(const RouterConfig& config,
                                                       const WatchedFiles::World& world,
                                                       Metrics& metrics, Logger& log);
  const std::string& current() const { return key_; }
  // Called with each new one from now on.
  void Follow(std::function<void(const std::string& key)> told) { told_ = std::move(told); }

 private:
  SaltKey(Metrics& metrics, Logger& log);
  void OnRead(const absl::StatusOr<FileContents>& contents);

  Logger& log_;
  Counter& reloads_;
  Counter& reload_failures_;
  std::string path_;
  std::string key_;
  std::function<void(const std::string& key)> told_;
  std::unique_ptr<WatchedFiles> watch_;
};

// The certificate of --tls-cert-file and --tls-key-file, which are watched; nullptr without.
absl::StatusOr<std::unique_ptr<TlsIdentity>> MakeTlsIdentity(const RouterConfig& config,
                                                             const WatchedFiles::World& world,
                                                             EdgeMetrics& counters, Logger& log);

}  // namespace quire
