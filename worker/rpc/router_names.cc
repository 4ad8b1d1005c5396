#include "worker/rpc/router_names.h"

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/openssl.h"

namespace quire {
namespace {

using Shared = std::shared_ptr<RouterNames>;
using GeneralNames = std::unique_ptr<GENERAL_NAMES, openssl::Deleter<GENERAL_NAMES_free>>;

// Where a context keeps its share.
int SharedIndex() {
  static const int index = SSL_CTX_get_ex_new_index(
      0, nullptr, nullptr, nullptr,
      [](void* /*context*/, void* shared, auto...) { delete static_cast<Shared*>(shared); });
  return index;
}

bool IsUri(std::string_view name) { return name.find("://") != std::string_view::npos; }

std::string Normal(std::string_view name) {
  return IsUri(name) ? std::string(name) : absl::AsciiStrToLower(AbslView(name));
}

}  // namespace

std::vector<std::string> AlternativeNames(const x509_st* certificate) {
  std::vector<std::string> names;
  const GeneralNames all(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; all != nullptr && i < sk_GENERAL_NAME_num(all.get()); ++i) {
    int type = 0;
    const void* value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(all.get(), i), &type);
    if (type != GEN_DNS && type != GEN_URI) continue;
    const auto* text = static_cast<const ASN1_STRING*>(value);
    const std::string_view name(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                                static_cast<size_t>(ASN1_STRING_length(text)));
    // Neither kind may match a name of the other kind.
    if (IsUri(name) == (type == GEN_URI)) names.push_back(Normal(name));
  }
  return names;
}

RouterNames::RouterNames(std::vector<std::string> allowed, Counter& refused, Logger& log)
    : allowed_([&allowed] {
        std::transform(allowed.begin(), allowed.end(), allowed.begin(), Normal);
        return std::move(allowed);
      }()),
      refused_(refused),
      log_(log) {}

void RouterNames::Ask(const TlsContext& context, std::shared_ptr<RouterNames> names) {
  QUIRE_CHECK(SSL_CTX_set_ex_data(context.get(), SharedIndex(), new Shared(std::move(names))) == 1);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, OnVerified);
}

// OpenSSL calls this for each certificate of the chain, for the peer's own last, when all
// signatures and dates have been found valid.
int RouterNames::OnVerified(int verified, x509_store_ctx_st* store) {
  if (verified != 1 || X509_STORE_CTX_get_error_depth(store) != 0) return verified;
  const auto* connection = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto* names =
      static_cast<const Shared*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), SharedIndex()));
  const std::vector<std::string> shown = AlternativeNames(X509_STORE_CTX_get_current_cert(store));
  if ((*names)->Allows(shown)) return 1;
  (*names)->Refuse(shown);
  X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
  return 0;
}

bool RouterNames::Allows(const std::vector<std::string>& shown) const {
  return std::any_of(shown.begin(), shown.end(), [this](const std::string& name) {
    return std::find(allowed_.begin(), allowed_.end(), name) != allowed_.end();
  });
}

void RouterNames::Refuse(const std::vector<std::string>& shown) {
  refused_.Add();
  std::string names = shown.empty() ? "none" : absl::StrJoin(shown, ", ");
  names.resize(std::min(names.size(), kMaxLogValueBytes));
  {
    MutexLock lock(mutex_);
    if (told_.size() >= kMaxToldNames || !told_.insert(names).second) return;
  }
  log_.Warning("refused a certificate that is no router's (--tls-router-name)",
               {{"names", names}, {"allowed", absl::StrJoin(allowed_, ", ")}});
}

}  // namespace quire
