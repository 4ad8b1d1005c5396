// What a request used, as its client is billed for it.
//
// A value.
#pragma once

#include <cstdint>

namespace quire {

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t reasoning_tokens = 0;
  // With a prediction: drafts that became tokens of the answer, and drafts that did not.
  bool has_prediction = false;
  uint32_t accepted_prediction_tokens = 0;
  uint32_t rejected_prediction_tokens = 0;
};

}  // namespace quire
