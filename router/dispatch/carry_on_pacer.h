// Bounds how much recompute resumed requests cause at once at each worker: when a worker dies, its
// streams move to the others at a pace that these can take, not as one flood of prefill.
//
// Owner: the dispatcher. Pure values.
//  1. Tokens in flight at a worker never exceed the limit, except that a single request may exceed
//     it alone.
#pragma once

#include <cstdint>
#include <vector>

#include "common/check.h"
#include "router/core/limits.h"

namespace quire {

class CarryOnPacer {
 public:
  explicit CarryOnPacer(uint64_t limit_tokens) : limit_(limit_tokens) { QUIRE_CHECK(limit_ > 0); }

  bool MayStart(WorkerIndex worker, uint64_t tokens) const {
    const uint64_t now = in_flight(worker);
    return now == 0 || (tokens <= limit_ && now <= limit_ - tokens);
  }
  // In flight until the attempt's first output, or its end.
  void Started(WorkerIndex worker, uint64_t tokens) {
    QUIRE_CHECK_MSG(MayStart(worker, tokens), "recompute in flight keeps to its limit");
    if (worker.value() >= tokens_.size()) tokens_.resize(worker.value() + 1);
    tokens_[worker.value()] += tokens;
  }
  void Over(WorkerIndex worker, uint64_t tokens) {
    QUIRE_CHECK(in_flight(worker) >= tokens);
    tokens_[worker.value()] -= tokens;
  }
  uint64_t in_flight(WorkerIndex worker) const {
    return worker.value() < tokens_.size() ? tokens_[worker.value()] : 0;
  }

 private:
  uint64_t limit_;
  std::vector<uint64_t> tokens_;  // by WorkerIndex
};

}  // namespace quire
