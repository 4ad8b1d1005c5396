// Steps have a time budget: a long prompt never stalls running streams. The queue has a limit.
#include <gtest/gtest.h>

#include "tests/worker/engine/engine_harness.h"

namespace quire::test {
namespace {

// What steps of this world really take: within 20 % of a law that the engine has to learn.
struct World {
  double fixed_us = 6'000, row_us = 500, token_us = 220, context_us = 0.004;
  std::mt19937_64 rng{11};

  double Law(int64_t rows, int64_t tokens, int64_t context) const {
    return fixed_us + row_us * static_cast<double>(rows) + token_us * static_cast<double>(tokens) +
           context_us * static_cast<double>(context);
  }
  int64_t Take(const StepPlan& plan) {
    int64_t rows = 0, tokens = 0, context = 0;
    for (const StepRow& row : plan.rows) {
      (row.q_len == 1 ? rows : tokens) += row.q_len;
      for (int32_t i = 0; i < row.q_len; ++i) context += row.first_position + i + 1;
    }
    const double error = 0.8 + 0.4 * static_cast<double>(rng() % 1001) / 1000.0;
    return static_cast<int64_t>(Law(rows, tokens, context) * error);
  }
};

constexpr int kStreams = 8;
constexpr int kLongPrompt = kAllSeeds ? 16'000 : 2'500;

// The longest gap between two tokens of a stream while long prompts come one after the other.
int64_t LongestGap(int64_t budget_us, int max_in_flight) {
  World world;
  HarnessOptions options = SmallEngine();
  options.max_in_flight = max_in_flight;
  options.plan_micros = [&world](const StepPlan& plan) { return world.Take(plan); };
  options.engine.max_model_len = 17'000;
  options.engine.max_num_seqs = 16;
  options.engine.max_num_batched_tokens = 2048;
  options.engine.block_size = 16;
  options.engine.cache_kinds = {{0, 1}};
  options.engine.page_count = 5'000;
  options.engine.max_step_time_us = budget_us;
  Harness harness(options);
  for (uint64_t stream = 1; stream <= kStreams; ++stream) {
    Submit submit = harness.MakeSubmit(stream, {1, 2, static_cast<TokenId>(stream)}, 200);
    submit.sampling.ignore_eos = true;
    harness.Send(submit);
  }
  std::map<uint64_t, int64_t> last_token_us;
  int64_t longest = 0;
  uint64_t prompts = 0;
  size_t answered = 0;
  for (int round = 0; round < 20'000 && answered < 3; ++round) {
    // The next prompt comes when the streams run, and each time that one has been answered.
    if (prompts == answered && harness.answer(kStreams).tokens.size() > 2) {
      ++prompts;
      std::vector<TokenId> prompt(kLongPrompt, static_cast<TokenId>(prompts));
      harness.Send(harness.MakeSubmit(100 + prompts, std::move(prompt), 1));
    }
    harness.Once();
    for (const RouterOutput& router : harness.last.routers) {
      for (const Output& output : router.outputs) {
        const uint64_t request = output.key.request.value();
        if (request > kStreams) continue;
        int64_t& last = last_token_us[request];
        if (last != 0) longest = std::max(longest, harness.now_us - last);
        last = harness.now_us;
      }
      answered += std::count_if(router.ended.begin(), router.ended.end(), [](const Ended& ended) {
        return ended.key.request.value() > kStreams;
      });
    }
    harness.now_us = std::max(harness.now_us, harness.last.next_wakeup_us);
  }
  EXPECT_EQ(answered, 3u);
  EXPECT_LT(harness.answer(1).tokens.size(), 200u) << "the streams ended before the prompts";
  return longest;
}

class StepTimeTest : public testing::TestWithParam<int> {};

TEST_P(StepTimeTest, NoGapExceedsTwiceTheBudgetWhileLongPromptsCome) {
  const World world;
  const double decode_and_block = world.Law(kStreams, 16, kStreams * 250 + 16 * kLongPrompt);
  for (const int64_t budget_us : {100'000, 200'000}) {
    const int64_t gap = LongestGap(budget_us, GetParam());
    const double bound = 2 * std::max(static_cast<double>(budget_us), decode_and_block);
    EXPECT_LE(static_cast<double>(gap), bound) << budget_us;
    EXPECT_GT(gap, budget_us / 2) << "the budget was hardly used";
  }
  // Without a budget a step is as long as its tokens make it.
  EXPECT_GT(LongestGap(0, GetParam()), 400'000);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, StepTimeTest, testing::Values(1, 2));

// Below what decodes and one block take, a step is just that: decodes are not held back and the
// prompt goes on by a block in each step.
TEST(StepBudgetTest, ABudgetBelowOneBlockStillMakesProgress) {
  HarnessOptions options = SmallEngine();
  options.step_micros = [](int64_t tokens) { return 1000 + 100 * tokens; };
  options.engine.max_step_time_us = 1;
  Harness harness(options);
  Submit stream = harness.MakeSubmit(1, {1, 2, 3}, 60);
  stream.sampling.ignore_eos = true;
  harness.Send(stream);
  harness.RunFor(10'000);
  const size_t before = harness.answer(1).tokens.size();
  harness.Send(harness.MakeSubmit(2, std::vector<TokenId>(100, 5), 1));
  const int64_t steps = harness.runner().steps_launched();
  for (int i = 0; i < 200 && harness.answer(2).ended.empty(); ++i) harness.RunFor(2'000);
  EXPECT_NEAR(harness.runner().steps_launched() - steps, 25, 2);  // of four tokens each
  EXPECT_NEAR(static_cast<double>(harness.answer(1).tokens.size() - before), 25.0, 2.0);
}

TEST(QueueTest, TheLimitIsServedAndOneMoreIsRefusedByName) {
  HarnessOptions options = SmallEngine();
  options.engine.max_waiting_requests = 3;
  options.engine.max_choices = 4;
  Harness harness(options);
  for (uint64_t request = 1; request <= 4; ++request) {
    Submit submit = harness.MakeSubmit(request, {1, 2, 3}, 3);
    submit.choices.resize(2);  // requests are counted, not choices
    harness.Send(submit);
  }
  harness.Once();
  ASSERT_EQ(harness.answer(4).refused.size(), 1u);
  EXPECT_EQ(harness.answer(4).refused[0].code, RefusalCode::kQueueFull);
  EXPECT_GT(harness.answer(4).refused[0].retry_after_ms, 0u);
  harness.RunFor(0);
  for (uint64_t request = 1; request <= 3; ++request) {
    EXPECT_TRUE(harness.answer(request).refused.empty());
    EXPECT_EQ(harness.answer(request).ended.size(), 2u);
  }
  harness.Send(harness.MakeSubmit(5, {1, 2, 3}, 3));
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(5).ended.size(), 1u);
}

}  // namespace
}  // namespace quire::test
