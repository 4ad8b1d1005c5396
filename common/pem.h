// Whether files of certificates and keys hold what a TLS connection needs, told before they are
// used and in words that help.
//
// Pure functions; any thread. Errors are INVALID_ARGUMENT and never hold a key.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace quire {

inline constexpr size_t kMaxPemBytes = 1u << 20;

// The texts of three PEM files for a connection on which both sides show a certificate.
struct MutualTlsPem {
  std::string authorities;  // one or several: two while one takes over from the other
  std::string certificate;  // and those that vouch for it
  std::string key;
};

// The first certificate fits the key, which has no passphrase; there is at least one authority.
absl::Status CheckMutualTls(const MutualTlsPem& pem);

// When the first certificate ends, in seconds since 1970; 0 where there is none.
int64_t CertificateEnd(const std::string& pem);

}  // namespace quire
