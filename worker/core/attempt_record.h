// What one attempt of a request cost this worker: made once, when the last of its choices ends.
//
// Plain data in EngineOutput; the engine does not know who records it. The sums of all records of
// an epoch equal the engine's totals when it is idle.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "common/ids.h"
#include "common/wire/values.h"

namespace quire {

// Consecutive steps that computed tokens of a prompt, or recomputed tokens whose pages had been
// released.
struct PrefillChunk {
  int64_t start_us = 0;  // the first of its steps was launched; on the engine's clock
  int64_t end_us = 0;    // the last of them had ended
  uint32_t tokens = 0;
  uint32_t steps = 0;
};

// The first chunks of an attempt, one for each step; the last entry covers all that follow.
// Allocates nothing.
class PrefillChunks {
 public:
  static constexpr size_t kMost = 16;
  void Add(int64_t start_us, int64_t end_us, uint32_t tokens) {
    PrefillChunk& chunk = chunks_[count_ < kMost ? count_++ : kMost - 1];
    if (chunk.steps++ == 0) chunk.start_us = start_us;
    chunk.end_us = end_us;
    chunk.tokens += tokens;
  }
  std::span<const PrefillChunk> all() const { return std::span(chunks_).first(count_); }

 private:
  std::array<PrefillChunk, kMost> chunks_;
  size_t count_ = 0;
};

// What the constraint of an attempt has cost.
struct ConstraintUse {
  ConstraintKind kind = ConstraintKind::kNone;
  bool kept = false;       // its grammar was there when the attempt came
  int64_t compile_us = 0;  // else the time that compiling it took, waits left out
  int64_t mask_us = 0;     // of all threads that computed its masks
};

struct AttemptRecord {
  RouterInstance router;
  AttemptKey key;
  std::string request_id;  // the client's, only passed along
  std::string tenant;
  std::string adapter;      // its digest; empty: the model alone
  std::string traceparent;  // of its router's span; empty: none came
  std::string tracestate;   // tracestate, which came with it
  uint32_t choices = 1;     // choices that this attempt ran, without those that had already ended
  uint32_t max_tokens = 0;  // the most outputs of each choice
  uint32_t longest_tokens =
      0;  // outputs generated here for the longest choice; 0 for a beam search
  EndReason reason = EndReason::kUnspecified;  // end reason of the choice that ended last
  AttemptUsage usage;
  uint32_t preemptions = 0;
  uint64_t resumed_tokens = 0;  // outputs that it began with
  PrefillChunks prefill;
  ConstraintUse constraint;

  // Phases in microseconds. A phase that an attempt never reached is 0; the three add up to its
  // total time.
  int64_t accepted_us = 0;  // on the engine's clock
  int64_t queue_us = 0;     // accepted → first named by a step
  int64_t prefill_us = 0;   // → its first token
  int64_t decode_us = 0;    // → its end; pauses and preemptions are inside
};

}  // namespace quire
