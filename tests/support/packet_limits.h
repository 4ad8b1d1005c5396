// The limits under which packets of the tests and of the fuzzer's corpus are decoded.
#pragma once

#include "worker/runner/step_packet.h"

namespace quire::test {

inline StepLimits SmallPacketLimits() {
  return {.max_rows = 8,
          .max_tokens = 64,
          .max_model_len = 128,
          .block_size = 4,
          .groups = 3,
          .page_count = 100,
          .vocab_size = 50,
          .max_loras = 3};
}

}  // namespace quire::test
