// An engine of constrained rows on the tag model, and what its answers have to be.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/tag_reference.h"
#include "tests/worker/engine/engine_harness.h"

namespace quire::test {

inline HarnessOptions Constrained(int max_in_flight = 1, int threads = 0) {
  HarnessOptions options = SmallEngine();
  options.engine.max_choices = 3;
  options.max_in_flight = max_in_flight;
  options.mask_threads = threads;
  return options;
}

inline TagModel TagModelOf(const EngineOptions& engine) {
  return {{engine.block_size, engine.page_count, engine.cache_kinds},
          engine.vocab_size,
          engine.max_model_len,
          engine.eos_token_ids};
}

inline void ExpectConstrained(const TagModel& model, const Submit& submit, Answer& answer) {
  ASSERT_TRUE(answer.refused.empty()) << answer.refused[0].message;
  for (uint32_t i = 0; i < submit.choices.size(); ++i) {
    const ReferenceAnswer expected = TagAnswer(model, submit, i, 0);
    EXPECT_EQ(answer.of(i), expected.tokens)
        << TagText(answer.of(i)) << " is not " << TagText(expected.tokens);
    const Ended* end = answer.end_of(i);
    ASSERT_NE(end, nullptr);
    EXPECT_EQ(end->reason, expected.reason);
    EXPECT_EQ(end->by_stop_token, expected.by_stop_token);
  }
}

}  // namespace quire::test
