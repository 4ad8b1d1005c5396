#include "router/link/worker_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <string_view>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

constexpr std::string_view kProtocol = "h2";
constexpr unsigned char kOffered[] = {2, 'h', '2'};

bool ExpectName(SSL* connection, const std::string& name) {
  X509_VERIFY_PARAM* param = SSL_get0_param(connection);
  if (X509_VERIFY_PARAM_set1_ip_asc(param, name.c_str()) == 1) return true;
  SSL_set_hostflags(connection, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set1_host(connection, name.c_str()) == 1 &&
         SSL_set_tlsext_host_name(connection, name.c_str()) == 1;
}

}  // namespace

absl::Status WorkerTlsContext::Make(const MutualTlsPem& pem) {
  const TlsContext context = NewTlsContext(false);
  QUIRE_CHECK(SSL_CTX_set_cipher_list(context.get(), kHttp2Ciphers) == 1);
  QUIRE_CHECK(SSL_CTX_set_alpn_protos(context.get(), kOffered, sizeof(kOffered)) == 0);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  QUIRE_RETURN_IF_ERROR(Trust(context, pem.authorities));
  QUIRE_RETURN_IF_ERROR(UseIdentity(context, pem.certificate, pem.key));
  context_ = context;
  made_of_ = pem;
  return absl::OkStatus();
}

absl::StatusOr<TlsConnection> WorkerTlsContext::NewConnection(const WorkerTls& tls) {
  const bool same = context_ != nullptr && made_of_.authorities == tls.pem.authorities &&
                    made_of_.certificate == tls.pem.certificate && made_of_.key == tls.pem.key;
  if (!same) QUIRE_RETURN_IF_ERROR(Make(tls.pem));
  TlsConnection connection(SSL_new(context_.get()), SSL_free);
  QUIRE_CHECK(connection != nullptr);
  SSL_set_connect_state(connection.get());
  const bool named = ExpectName(connection.get(), tls.name);
  ERR_clear_error();
  if (!named) return InvalidArgument("no certificate can have the name '" + tls.name + "'");
  return connection;
}

absl::Status HandshakeStatus(const ssl_st* connection, bool succeeded) {
  const unsigned long error = ERR_peek_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  if (!succeeded) {
    const long verified = SSL_get_verify_result(connection);
    if (verified != X509_V_OK) reason = X509_verify_cert_error_string(verified);
    return absl::UnavailableError(AbslView(
        std::string("TLS: ") + (reason == nullptr ? "the worker closed the connection" : reason)));
  }
  const unsigned char* chosen = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(connection, &chosen, &size);
  if (std::string_view(reinterpret_cast<const char*>(chosen), size) == kProtocol) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("TLS: the worker does not speak HTTP/2 (ALPN)");
}

}  // namespace quire
