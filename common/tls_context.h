// Builds OpenSSL's contexts from PEM files, for servers and clients.
//
// Any thread. INVALID_ARGUMENT says which of the files is wrong, and never contains a key.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

struct ssl_ctx_st;

namespace quire {

// Shared by two owners: the code that replaces it by a newer one, and the connections that began
// with it.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// TLS 1.2 and later, without what only old peers need; an idle connection holds no buffers, and a
// write may send a part of its data.
TlsContext NewTlsContext(bool server);

// Of TLS 1.2: those that HTTP/2 allows (RFC 9113, section 9.2.2).
inline constexpr char kHttp2Ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

// A peer's certificate must be one of these authorities', or signed by one.
absl::Status Trust(const TlsContext& context, const std::string& authorities);

// Shows the certificate followed by its chain, and has its private key.
absl::Status UseIdentity(const TlsContext& context, const std::string& certificates,
                         const std::string& key);

}  // namespace quire
