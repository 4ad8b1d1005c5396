// How fast wrong API keys may come from one address.
//
// Owner: a KeyRing; any thread. Bounded: addresses share kWrongKeyBuckets buckets, assigned by a
// hash that no client can compute, so that two addresses in one bucket only slow each other's wrong
// keys down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/client_address.h"
#include "common/runtime/token_bucket.h"
#include "common/sync.h"

namespace quire {

inline constexpr size_t kWrongKeyBuckets = 4096;
inline constexpr RateLimit kWrongKeysRate{.per_second = 1, .burst = 20};
inline constexpr uint32_t kWrongKeysRetryMs = 1000;

class WrongKeys {
 public:
  explicit WrongKeys(const Clock& clock);

  // A wrong key came. False: too many did.
  bool Take(const ClientAddress& from);

 private:
  const Clock& clock_;
  const uint64_t seed_;
  Mutex mutex_;
  std::vector<TokenBucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire
