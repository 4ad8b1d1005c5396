// What a device keeps of sequences between steps: their block tables and last samples, by slot.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/runtime.h"
#include "kernels/sampling/sample_row.h"

namespace quire::kernels::cuda {

// Before a step: tables[changes[i]] = pages[i], and a token t below 0 becomes last[−1 − t]. No two
// changes have the same place.
struct StepBeginParams {
  const int32_t* changes = nullptr;
  const int32_t* pages = nullptr;
  const int32_t* change_count = nullptr;  // of them; at most `most_changes`
  int most_changes = 0;
  int32_t* tables = nullptr;
  int32_t* tokens = nullptr;
  int token_count = 0;
  const int32_t* last = nullptr;  // by slot
};
runtime::Error LaunchStepBegin(runtime::Runtime& runtime, runtime::StreamId stream,
                               const StepBeginParams& params);

// After samples: copies them to the host, and keeps the token of sample i as last[slots[i]] where
// slots[i] is not below 0. A row without a token keeps 0: its request fails, but the next step
// still needs some input.
struct StepEndParams {
  const SampleOutput* outputs = nullptr;
  SampleOutput* host = nullptr;    // mapped
  const int32_t* slots = nullptr;  // no slot twice
  int count = 0;
  int32_t* last = nullptr;
};
runtime::Error LaunchStepEnd(runtime::Runtime& runtime, runtime::StreamId stream,
                             const StepEndParams& params);

}  // namespace quire::kernels::cuda
