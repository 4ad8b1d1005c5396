#include "common/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "common/check.h"
#include "common/openssl.h"

namespace quire {
namespace {

constexpr long kMaxChain = 16;

// A complete file ends when no further certificate begins.
bool EndedWhole() { return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE; }

absl::Status UseChain(SSL_CTX* context, const std::string& pem) {
  const openssl::Bio bio = openssl::BioOf(pem);
  const openssl::Certificate leaf = openssl::ReadCertificate(bio.get());
  if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return InvalidArgument("the certificate file holds no usable certificate in PEM");
  }
  for (long count = 0;; ++count) {
    openssl::Certificate next = openssl::ReadCertificate(bio.get());
    if (!next && EndedWhole()) return absl::OkStatus();
    const std::string which = "certificate " + std::to_string(count + 2) + " of the file ";
    if (!next) return InvalidArgument(which + "is broken");
    if (count == kMaxChain) return InvalidArgument("the certificate file holds too long a chain");
    if (SSL_CTX_add0_chain_cert(context, next.get()) != 1) {
      return InvalidArgument(which + "is refused, as its key or signature is too weak for TLS");
    }
    static_cast<void>(next.release());  // the context owns it now
  }
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

}  // namespace

TlsContext NewTlsContext(bool server) {
  TlsContext context(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method()),
                     openssl::Deleter<SSL_CTX_free>());
  QUIRE_CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // A peer that closes without a TLS record has left, as many do; the inner protocol detects
  // truncated data.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  return context;
}

absl::Status UseIdentity(const TlsContext& context, const std::string& certificates,
                         const std::string& key) {
  absl::Status status = UseChain(context.get(), certificates);
  if (status.ok()) status = UseKey(context.get(), key);
  ERR_clear_error();
  return status;
}

absl::Status Trust(const TlsContext& context, const std::string& authorities) {
  X509_STORE* store = SSL_CTX_get_cert_store(context.get());
  // An authority in the file is trusted, whichever authority signed it.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  const openssl::Bio bio = openssl::BioOf(authorities);
  int count = 0;
  while (const openssl::Certificate authority = openssl::ReadCertificate(bio.get())) {
    X509_STORE_add_cert(store, authority.get());
    ++count;
  }
  const bool whole = EndedWhole();
  ERR_clear_error();
  if (count == 0) return InvalidArgument("the file of authorities holds no certificate in PEM");
  if (whole) return absl::OkStatus();
  return InvalidArgument("the file of authorities holds a broken certificate after " +
                         std::to_string(count) + " good ones");
}

}  // namespace quire
