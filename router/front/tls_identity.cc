#include "router/front/tls_identity.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string_view>

#include "common/check.h"
#include "common/openssl.h"
#include "common/pem.h"

namespace quire {
namespace {

constexpr long kMaxChain = 16;

absl::Status UseChain(SSL_CTX* context, const std::string& pem) {
  const openssl::Bio bio = openssl::BioOf(pem);
  const openssl::Certificate leaf = openssl::ReadCertificate(bio.get());
  if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return InvalidArgument("the certificate file holds no usable certificate in PEM");
  }
  for (long count = 0;; ++count) {
    openssl::Certificate next = openssl::ReadCertificate(bio.get());
    if (!next) break;
    if (count == kMaxChain) return InvalidArgument("the certificate file holds too long a chain");
    if (SSL_CTX_add0_chain_cert(context, next.get()) == 1) next.release();
  }
  return absl::OkStatus();
}

absl::Status UseKey(SSL_CTX* context, const std::string& pem) {
  const openssl::PrivateKey key = openssl::ReadPrivateKey(openssl::BioOf(pem).get());
  if (!key) {
    return InvalidArgument("the key file holds no private key in PEM without a passphrase");
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return InvalidArgument("the private key does not fit the certificate");
  }
  return absl::OkStatus();
}

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
  TlsContext context(SSL_CTX_new(TLS_server_method()), openssl::Deleter<SSL_CTX_free>());
  QUIRE_CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A client that closes without a word of TLS is one that leaves, as many do.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_IGNORE_UNEXPECTED_EOF |
                                         SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Buffers of a connection that is idle are given back.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  const auto choose = [](SSL*, const unsigned char** chosen, unsigned char* length,
                         const unsigned char* offered, unsigned int bytes, void*) {
    const std::string_view name = ChooseProtocol({reinterpret_cast<const char*>(offered), bytes});
    if (name.empty()) return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = reinterpret_cast<const unsigned char*>(name.data());
    *length = static_cast<unsigned char>(name.size());
    return SSL_TLSEXT_ERR_OK;
  };
  SSL_CTX_set_alpn_select_cb(context.get(), choose, nullptr);
  absl::Status status = UseChain(context.get(), certificates);
  if (status.ok()) status = UseKey(context.get(), key);
  ERR_clear_error();
  if (!status.ok()) return status;
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
