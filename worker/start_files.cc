#include "worker/start_files.h"

#include <string>

#include "common/pem.h"
#include "common/runtime/asio_executor.h"
#include "worker/adapters/desired_adapters.h"

namespace quire {
namespace {

absl::Status CheckTlsFiles(const WorkerConfig& config) {
  if (config.tls_cert_file.empty()) return absl::OkStatus();
  RealFiles files;
  MutualTlsPem pem;
  struct Read {
    const char* flag;
    const std::string& path;
    std::string& text;
  };
  const Read reads[] = {{"--tls-cert-file", config.tls_cert_file, pem.certificate},
                        {"--tls-key-file", config.tls_key_file, pem.key},
                        {"--tls-ca-file", config.tls_ca_file, pem.authorities}};
  for (const Read& read : reads) {
    absl::StatusOr<std::string> text = files.Read(read.path, kMaxPemBytes);
    if (!text.ok()) return Annotate(text.status(), read.flag);
    read.text = *std::move(text);
  }
  return Annotate(CheckMutualTls(pem), "--tls-cert-file, --tls-key-file, --tls-ca-file");
}

absl::Status CheckLoraDir(const WorkerConfig& config) {
  if (config.lora_dir.empty()) return absl::OkStatus();
  return Annotate(ReadDesiredAdapters(config.lora_dir).status(), "--lora-dir");
}

}  // namespace

absl::Status CheckStartFiles(const WorkerConfig& config) {
  QUIRE_RETURN_IF_ERROR(CheckTlsFiles(config));
  return CheckLoraDir(config);
}

}  // namespace quire
