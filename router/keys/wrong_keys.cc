#include "router/keys/wrong_keys.h"

#include <openssl/rand.h>
#include <xxhash.h>

#include <algorithm>

#include "common/check.h"

namespace quire {
namespace {

uint64_t RandomSeed() {
  uint64_t seed = 0;
  QUIRE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof(seed)) == 1);
  return seed;
}

}  // namespace

WrongKeys::WrongKeys(const Clock& clock)
    : clock_(clock), seed_(RandomSeed()), buckets_(kWrongKeyBuckets) {}

bool WrongKeys::Take(const ClientAddress& from) {
  const ClientAddress share = from.Share();
  const uint64_t hash = XXH3_64bits_withSeed(share.bytes.data(), share.bytes.size(), seed_);
  const Micros now = clock_.Now();
  MutexLock lock(mutex_);
  Bucket& bucket = buckets_[hash % buckets_.size()];
  const double seconds =
      static_cast<double>(now - bucket.at) / static_cast<double>(kMicrosPerSecond);
  bucket.left = std::min(kWrongKeysBurst, bucket.left + seconds * kWrongKeysPerSecond);
  bucket.at = now;
  if (bucket.left < 1) return false;
  bucket.left -= 1;
  return true;
}

}  // namespace quire
