// Which certificates a worker accepts from routers: the authority signs many, and only those with a
// name from a list are routers'.
//
// Shared by the TLS contexts that use it; any thread.
//  1. A certificate without such a name ends its handshake, is counted, and is logged once for each
//     name, at most kMaxToldNames times until the TLS files change.
//  2. A DNS name matches without regard to case, a URI (spiffe://…) byte for byte; a wildcard in a
//     certificate matches nothing.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/sync.h"
#include "common/tls_context.h"

struct x509_st;
struct x509_store_ctx_st;

namespace quire {

inline constexpr size_t kMaxToldNames = 32;

class RouterNames {
 public:
  // `refused` and `log` outlive every context that uses it.
  RouterNames(std::vector<std::string> allowed, Counter& refused, Logger& log);

  // The context requires a certificate of every peer, and checks with `names` whether it is a
  // router's. The context shares ownership of `names`.
  static void Ask(const TlsContext& context, std::shared_ptr<RouterNames> names);

 private:
  static int OnVerified(int verified, x509_store_ctx_st* store);
  bool Allows(const std::vector<std::string>& shown) const;
  void Refuse(const std::vector<std::string>& shown);

  const std::vector<std::string> allowed_;
  Counter& refused_;
  Logger& log_;
  Mutex mutex_;
  std::set<std::string> told_ ABSL_GUARDED_BY(mutex_);
};

// The subject alternative names of a certificate that are DNS names, in lower case, or URIs.
std::vector<std::string> AlternativeNames(const x509_st* certificate);

}  // namespace quire
