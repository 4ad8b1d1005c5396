#include "worker/scheduler/step_cost.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace quire {
namespace {

int Bucket(int64_t tokens) {
  QUIRE_CHECK(tokens > 0);
  return std::min(31, static_cast<int>(std::bit_width(static_cast<uint64_t>(tokens))) - 1);
}

}  // namespace

int64_t StepCost::PredictMicros(int64_t tokens) const {
  const int bucket = Bucket(tokens);
  if (micros_[bucket] > 0) return micros_[bucket];
  // From the nearest smaller step that was seen, as if cost grew with the token count.
  for (int seen = bucket - 1; seen >= 0; --seen) {
    if (micros_[seen] > 0) return micros_[seen] << (bucket - seen);
  }
  return tokens * kUnknownMicrosPerToken;
}

void StepCost::Observe(int64_t tokens, int64_t elapsed_us) {
  QUIRE_CHECK(elapsed_us >= 0);
  int64_t& micros = micros_[Bucket(tokens)];
  const int64_t seen = std::max<int64_t>(1, elapsed_us);
  micros = micros == 0 ? seen : micros + (seen - micros) / 8;
  micros = std::max<int64_t>(1, micros);
}

}  // namespace quire
