// Who reads what the target computed in a step: a draft head beside the model.
//
// Called by a runner, on its thread, once for each step that it has collected and before the next
// is built.
#pragma once

#include <cstdint>
#include <span>

#include "common/ids.h"
#include "common/wire/sampling.h"
#include "kernels/feature_ops.h"
#include "kernels/step_batch.h"

namespace quire {

// What a step computed of one row, as far as it became the row's tokens.
struct ObservedRow {
  uint64_t sequence = 0;
  int32_t slot = 0;            // the row's place in the runner's table, below its max_rows
  int32_t first_position = 0;  // of the computed tokens
  int32_t first_feature = 0;   // the row of features that belongs to it; others follow
  // The tokens behind the computed ones, one for each: at first_position + 1 and so on. The last
  // computed position is not among them where its next token is not known yet.
  std::span<const TokenId> next;
  bool sampled = false;  // `next` ends with the row's last token
  int64_t prompt_length = 0;
  uint32_t choice = 0;
  const SamplingParams* sampling = nullptr;  // valid during the call
  // Page ids by cache group, then by logical block. Valid during the call.
  std::span<const std::span<const int32_t>> block_tables;
};

struct ObservedStep {
  kernels::FeatureRows features;  // of the step's tokens; valid during the call
  std::span<const ObservedRow> rows;
  std::span<const kernels::PageCopy> copies;  // made before the step computed
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void Observe(const ObservedStep& step) = 0;
};

}  // namespace quire
