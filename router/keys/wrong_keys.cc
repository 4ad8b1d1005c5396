#include "router/keys/wrong_keys.h"

#include <openssl/rand.h>
#include <xxhash.h>

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
    : clock_(clock),
      seed_(RandomSeed()),
      buckets_(kWrongKeyBuckets, TokenBucket(kWrongKeysRate, clock.Now())) {}

bool WrongKeys::Take(const ClientAddress& from) {
  const ClientAddress share = from.Share();
  const uint64_t hash = XXH3_64bits_withSeed(share.bytes.data(), share.bytes.size(), seed_);
  const Micros now = clock_.Now();
  MutexLock lock(mutex_);
  return buckets_[hash % buckets_.size()].TryTake(1, now);
}

}  // namespace quire
