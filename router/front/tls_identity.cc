#include "router/front/tls_identity.h"

#include <openssl/ssl.h>

#include <string_view>

#include "common/check.h"
#include "common/pem.h"

namespace quire {
namespace {

// Finds a name among those that a client offers, each after its length; empty: it is not among
// them.
std::string_view Find(std::string_view wanted, std::string_view offered) {
  while (!offered.empty()) {
    const size_t size = static_cast<unsigned char>(offered[0]);
    if (size > offered.size() - 1) break;
    const std::string_view name = offered.substr(1, size);
    if (name == wanted) return name;
    offered.remove_prefix(1 + size);
  }
  return {};
}

int Choose(std::string_view first, std::string_view second, std::string_view offered,
           const unsigned char** chosen, unsigned char* length) {
  std::string_view name = Find(first, offered);
  if (name.empty()) name = Find(second, offered);
  if (name.empty()) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = reinterpret_cast<const unsigned char*>(name.data());
  *length = static_cast<unsigned char>(name.size());
  return SSL_TLSEXT_ERR_OK;
}

TlsContext NewEdgeContext() {
  TlsContext context = NewTlsContext(true);
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  return context;
}

}  // namespace

absl::StatusOr<EdgeContexts> MakeEdgeContexts(const std::string& certificates,
                                              const std::string& key) {
  EdgeContexts contexts{NewEdgeContext(), NewEdgeContext()};
  const auto http1_first = [](SSL*, const unsigned char** chosen, unsigned char* length,
                              const unsigned char* offered, unsigned int bytes, void*) {
    return Choose("http/1.1", "h2", {reinterpret_cast<const char*>(offered), bytes}, chosen,
                  length);
  };
  const auto http2_first = [](SSL*, const unsigned char** chosen, unsigned char* length,
                              const unsigned char* offered, unsigned int bytes, void*) {
    return Choose("h2", "http/1.1", {reinterpret_cast<const char*>(offered), bytes}, chosen,
                  length);
  };
  SSL_CTX_set_alpn_select_cb(contexts.http1_first.get(), http1_first, nullptr);
  SSL_CTX_set_alpn_select_cb(contexts.http2_first.get(), http2_first, nullptr);
  QUIRE_RETURN_IF_ERROR(UseIdentity(contexts.http1_first, certificates, key));
  QUIRE_RETURN_IF_ERROR(UseIdentity(contexts.http2_first, certificates, key));
  return contexts;
}

TlsIdentity::TlsIdentity(EdgeContexts contexts, EdgeMetrics& counters, Logger& log)
    : contexts_(std::move(contexts)), counters_(counters), log_(log) {
  QUIRE_CHECK(contexts_.http1_first != nullptr && contexts_.http2_first != nullptr);
}

void TlsIdentity::Watch(const WatchedFiles::World& world, WatchedFilesOptions options,
                        FileContents known) {
  QUIRE_CHECK(options.paths.size() == 2);
  path_ = options.paths[0];
  counters_.tls_certificate_end.Set(static_cast<double>(CertificateEnd(known[0])));
  watch_ = std::make_unique<WatchedFiles>(
      world, std::move(options), std::move(known),
      [this](absl::StatusOr<FileContents> contents) { OnRead(std::move(contents)); });
}

void TlsIdentity::OnRead(absl::StatusOr<FileContents> contents) {
  absl::Status status = contents.status();
  if (contents.ok()) {
    absl::StatusOr<EdgeContexts> made = MakeEdgeContexts((*contents)[0], (*contents)[1]);
    status = made.status();
    if (made.ok()) {
      contexts_ = *std::move(made);
      counters_.tls_certificate_end.Set(static_cast<double>(CertificateEnd((*contents)[0])));
    }
  }
  if (status.ok()) {
    counters_.tls_reloads.Add();
    log_.Info("the TLS certificate has changed and is shown to new connections", {{"file", path_}});
    return;
  }
  counters_.tls_reload_failures.Add();
  log_.Error("the TLS certificate or key cannot be used; the last good ones are shown",
             {{"file", path_}, {"error", StatusMessage(status)}});
}

}  // namespace quire
