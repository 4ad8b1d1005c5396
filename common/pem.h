// Checks whether files of certificates and keys hold what a TLS connection needs, before they are
// used, with errors that help.
//
// Pure functions; any thread. Errors are INVALID_ARGUMENT and never contain a key.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace quire {

inline constexpr size_t kMaxPemBytes = 1u << 20;

// The texts of three PEM files for a connection on which both sides show a certificate.
struct MutualTlsPem {
  std::string authorities;  // one or several: two while one replaces the other
  std::string certificate;  // followed by its chain
  std::string key;
};

// The first certificate fits the key, which has no passphrase; there is at least one authority.
absl::Status CheckMutualTls(const MutualTlsPem& pem);

// The end of the first certificate's validity, in seconds since 1970; 0 where there is none.
int64_t CertificateEnd(const std::string& pem);

}  // namespace quire
