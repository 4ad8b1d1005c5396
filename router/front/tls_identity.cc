#include "router/front/tls_identity.h"

#include <openssl/ssl.h>

#include <string_view>

#include "common/check.h"
#include "common/pem.h"

namespace quire {
namespace {

// Of what a client offers, each name with its length before it; empty: nothing fits.
std::string_view ChooseProtocol(std::string_view offered) {
  for (const std::string_view wanted : {std::string_view("http/1.1"), std::string_view("h2")}) {
    std::string_view rest = offered;
    while (!rest.empty()) {
      const size_t size = static_cast<unsigned char>(rest[0]);
      if (size > rest.size() - 1) break;
      const std::string_view name = rest.substr(1, size);
      if (name == wanted) return name;
      rest.remove_prefix(1 + size);
    }
  }
  return {};
}

}  // namespace

absl::StatusOr<TlsContext> MakeTlsContext(const std::string& certificates, const std::string& key) {
  TlsContext context = NewTlsContext(true);
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  const auto choose = [](SSL*, const unsigned char** chosen, unsigned char* length,
                         const unsigned char* offered, unsigned int bytes, void*) {
    const std::string_view name = ChooseProtocol({reinterpret_cast<const char*>(offered), bytes});
    if (name.empty()) return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = reinterpret_cast<const unsigned char*>(name.data());
    *length = static_cast<unsigned char>(name.size());
    return SSL_TLSEXT_ERR_OK;
  };
  SSL_CTX_set_alpn_select_cb(context.get(), choose, nullptr);
  QUIRE_RETURN_IF_ERROR(UseIdentity(context, certificates, key));
  return context;
}

TlsIdentity::TlsIdentity(TlsContext context, EdgeMetrics& counters, Logger& log)
    : context_(std::move(context)), counters_(counters), log_(log) {
  QUIRE_CHECK(context_ != nullptr);
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
    absl::StatusOr<TlsContext> made = MakeTlsContext((*contents)[0], (*contents)[1]);
    status = made.status();
    if (made.ok()) {
      context_ = *std::move(made);
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
