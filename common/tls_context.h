// What OpenSSL needs of PEM files before it can speak TLS, for those who listen and those who dial.
//
// Any thread. INVALID_ARGUMENT says which of the files is wrong, and never holds a key.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

struct ssl_ctx_st;

namespace quire {

// Both owners: whoever exchanges it for a newer one, and the connections that began with it.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// TLS 1.2 and later, without what only old peers want; an idle connection holds no buffers, and a
// write may be of a part of what it is given.
TlsContext NewTlsContext(bool server);

// Of TLS 1.2: those that HTTP/2 allows (RFC 9113, section 9.2.2).
inline constexpr char kHttp2Ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

// A peer's certificate is one of these authorities', or vouched for by one.
absl::Status Trust(const TlsContext& context, const std::string& authorities);

// Shows the certificate with those that vouch for it after it, and has its private key.
absl::Status UseIdentity(const TlsContext& context, const std::string& certificates,
                         const std::string& key);

}  // namespace quire
