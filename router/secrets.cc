#include "router/secrets.h"

#include <openssl/rand.h>

namespace quire {
namespace {

constexpr size_t kMinSaltKeyBytes = 16;
constexpr size_t kMaxSecretBytes = 4096;  // of a file with a salt key or a token
constexpr size_t kRandomSaltKeyBytes = 32;

absl::Status WrongFile(std::string_view flag, const std::string& path, const absl::Status& status) {
  std::string message = StatusMessage(status);
  if (message.find(path) == std::string::npos) message = path + ": " + message;
  return InvalidArgument(std::string(flag) + ": " + message);
}

absl::StatusOr<std::string> ReadSaltKey(const std::string& text) {
  std::string key = OneLine(text);
  if (key.size() >= kMinSaltKeyBytes) return key;
  return InvalidArgument("must hold at least " + std::to_string(kMinSaltKeyBytes) +
                         " bytes; `openssl rand -hex 32 > FILE` makes a good one");
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeyRing>> MakeAdminRing(const RouterConfig& config,
                                                       const WatchedFiles::World& world,
                                                       Metrics& metrics, Logger& log) {
  constexpr std::string_view kFlag = "--admin-token-file";
  const std::string& path = config.admin_token_file;
  WatchedFilesOptions options{.paths = {path}, .max_bytes = kMaxSecretBytes};
  absl::StatusOr<FileContents> contents = ReadAll(world.files, options);
  if (!contents.ok()) return WrongFile(kFlag, path, contents.status());
  const auto read_table = [](const std::string& text) {
    return KeyTable::OfPlainKeys({OneLine(text)}, "admin");
  };
  auto table = read_table(contents->front());
  if (!table.ok()) return WrongFile(kFlag, path, table.status());
  auto ring = std::make_unique<KeyRing>(*std::move(table), metrics, log, "quire_router_admin");
  ring->SlowWrongKeys(world.executor.clock());
  ring->Watch(world, std::move(options), *std::move(contents), read_table);
  return ring;
}

absl::StatusOr<std::unique_ptr<KeyRing>> MakeKeyRing(const RouterConfig& config,
                                                     const WatchedFiles::World& world,
                                                     Metrics& metrics, Logger& log) {
  if (!HasKeys(config)) return std::make_unique<KeyRing>(nullptr, metrics, log);
  absl::StatusOr<std::shared_ptr<const KeyTable>> fixed =
      KeyTable::OfPlainKeys(config.api_keys, "default");
  if (!fixed.ok()) return Annotate(fixed.status(), "--api-key");
  if (config.api_key_file.empty()) {
    auto keys = std::make_unique<KeyRing>(*fixed, metrics, log);
    keys->SlowWrongKeys(world.executor.clock());
    return keys;
  }

  constexpr std::string_view kFlag = "--api-key-file";
  const std::string& path = config.api_key_file;
  WatchedFilesOptions options{.paths = {path}, .max_bytes = kMaxKeyFileBytes};
  absl::StatusOr<FileContents> contents = ReadAll(world.files, options);
  if (!contents.ok()) return WrongFile(kFlag, path, contents.status());
  const auto read_table = [fixed = *std::move(fixed)](const std::string& text) {
    absl::StatusOr<std::shared_ptr<const KeyTable>> table = KeyTable::Parse(text);
    if (table.ok()) table = KeyTable::Join(**table, *fixed);
    return table;
  };
  absl::StatusOr<std::shared_ptr<const KeyTable>> table = read_table(contents->front());
  if (!table.ok()) return WrongFile(kFlag, path, table.status());
  if ((*table)->size() == 0)
    log.Warning("the key file has no keys: the router refuses every request");
  auto keys = std::make_unique<KeyRing>(*std::move(table), metrics, log);
  keys->SlowWrongKeys(world.executor.clock());
  keys->Watch(world, std::move(options), *std::move(contents), read_table);
  return keys;
}

WorkerTlsFiles::WorkerTlsFiles(Metrics& metrics, Logger& log)
    : log_(log),
      reloads_(metrics.AddCounter({"quire_router_worker_tls_reloads_total",
                                   "Times that changed certificates for workers came in force."})),
      reload_failures_(
          metrics.AddCounter({"quire_router_worker_tls_reload_failures_total",
                              "Times that certificates for workers were unreadable or wrong."})),
      end_(metrics.AddGauge({"quire_router_certificate_not_after_seconds",
                             "When the certificate ends that is shown, since 1970; 0: none is.",
                             {{"shown_to", "workers"}}})) {}

absl::StatusOr<std::unique_ptr<WorkerTlsFiles>> WorkerTlsFiles::Make(
    const RouterConfig& config, const WatchedFiles::World& world, Metrics& metrics, Logger& log) {
  std::unique_ptr<WorkerTlsFiles> made(new WorkerTlsFiles(metrics, log));
  if (config.worker_tls_ca_file.empty()) return made;
  constexpr std::string_view kFlags =
      "--worker-tls-ca-file, --worker-tls-cert-file, --worker-tls-key-file";
  made->name_ = config.worker_tls_name;
  WatchedFilesOptions options{
      .paths = {config.worker_tls_ca_file, config.worker_tls_cert_file, config.worker_tls_key_file},
      .max_bytes = kMaxPemBytes};
  absl::StatusOr<FileContents> contents = ReadAll(world.files, options);
  if (!contents.ok()) {
    return InvalidArgument(std::string(kFlags) + ": " + StatusMessage(contents.status()));
  }
  QUIRE_RETURN_IF_ERROR(Annotate(made->Take(*contents), kFlags));
  made->watch_ = std::make_unique<WatchedFiles>(
      world, std::move(options), *std::move(contents),
      [files = made.get()](const absl::StatusOr<FileContents>& read) { files->OnRead(read); });
  return made;
}

absl::Status WorkerTlsFiles::Take(const FileContents& contents) {
  WorkerTls tls{{contents[0], contents[1], contents[2]}, name_};
  QUIRE_RETURN_IF_ERROR(CheckMutualTls(tls.pem));
  tls_ = std::move(tls);
  end_.Set(static_cast<double>(CertificateEnd(contents[1])));
  return absl::OkStatus();
}

void WorkerTlsFiles::OnRead(const absl::StatusOr<FileContents>& contents) {
  const absl::Status status = contents.ok() ? Take(*contents) : contents.status();
  if (status.ok()) {
    reloads_.Add();
    log_.Info("the certificates for workers have changed and hold for new links");
    return;
  }
  reload_failures_.Add();
  log_.Error("the certificates for workers cannot be used; the last good ones hold",
             {{"error", StatusMessage(status)}});
}

absl::StatusOr<std::unique_ptr<TlsIdentity>> MakeTlsIdentity(const RouterConfig& config,
                                                             const WatchedFiles::World& world,
                                                             EdgeMetrics& counters, Logger& log) {
  if (config.tls_cert_file.empty()) return nullptr;
  constexpr std::string_view kFlags = "--tls-cert-file, --tls-key-file";
  WatchedFilesOptions options{.paths = {config.tls_cert_file, config.tls_key_file},
                              .max_bytes = kMaxPemBytes};
  absl::StatusOr<FileContents> contents = ReadAll(world.files, options);
  if (!contents.ok()) {
    return InvalidArgument(std::string(kFlags) + ": " + StatusMessage(contents.status()));
  }
  absl::StatusOr<EdgeContexts> made = MakeEdgeContexts((*contents)[0], (*contents)[1]);
  if (!made.ok()) return WrongFile(kFlags, config.tls_cert_file, made.status());
  auto identity = std::make_unique<TlsIdentity>(*std::move(made), counters, log);
  identity->Watch(world, std::move(options), *std::move(contents));
  return identity;
}

SaltKey::SaltKey(Metrics& metrics, Logger& log)
    : log_(log),
      reloads_(metrics.AddCounter(
          {"quire_router_salt_key_reloads_total", "Times that a changed salt key came in force."})),
      reload_failures_(
          metrics.AddCounter({"quire_router_salt_key_reload_failures_total",
                              "Times that the salt key's file was unreadable or wrong."})) {}

absl::StatusOr<std::unique_ptr<SaltKey>> SaltKey::Make(const RouterConfig& config,
                                                       const WatchedFiles::World& world,
                                                       Metrics& metrics, Logger& log) {
  std::unique_ptr<SaltKey> salt(new SaltKey(metrics, log));
  if (config.salt_key_file.empty()) {
    if (!HasKeys(config)) return salt;
    salt->key_.resize(kRandomSaltKeyBytes);
    auto* bytes = reinterpret_cast<unsigned char*>(salt->key_.data());
    if (RAND_bytes(bytes, static_cast<int>(kRandomSaltKeyBytes)) == 1) return salt;
    return absl::InternalError("the system gives no random bytes");
  }
  constexpr std::string_view kFlag = "--salt-key-file";
  salt->path_ = config.salt_key_file;
  WatchedFilesOptions options{.paths = {salt->path_}, .max_bytes = kMaxSecretBytes};
  absl::StatusOr<FileContents> contents = ReadAll(world.files, options);
  if (!contents.ok()) return WrongFile(kFlag, salt->path_, contents.status());
  absl::StatusOr<std::string> key = ReadSaltKey(contents->front());
  if (!key.ok()) return WrongFile(kFlag, salt->path_, key.status());
  salt->key_ = *std::move(key);
  salt->watch_ = std::make_unique<WatchedFiles>(
      world, std::move(options), *std::move(contents),
      [self = salt.get()](const absl::StatusOr<FileContents>& read) { self->OnRead(read); });
  return salt;
}

void SaltKey::OnRead(const absl::StatusOr<FileContents>& contents) {
  absl::StatusOr<std::string> key =
      contents.ok() ? ReadSaltKey(contents->front()) : contents.status();
  if (!key.ok()) {
    reload_failures_.Add();
    log_.Error("the salt key's file cannot be used; the last good key holds",
               {{"file", path_}, {"error", StatusMessage(key.status())}});
    return;
  }
  if (*key == key_) return;
  key_ = *std::move(key);
  reloads_.Add();
  log_.Info("the salt key has changed and holds for new requests", {{"file", path_}});
  if (told_) told_(key_);
}

}  // namespace quire
