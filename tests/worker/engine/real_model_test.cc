// One answer on real kernels: a small random model, batched with random neighbours, little memory
// and odd chunks, gives the tokens and the logprob bits of a run alone.
#include <bit>
#include <map>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/support/guess_drafter.h"
#include "tests/support/tiny_program.h"
#include "worker/engine/engine.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire::test {
namespace {

constexpr int32_t kMaxModelLen = 160;
constexpr int32_t kMaxRows = 6;
constexpr int32_t kBlockSize = 16;
constexpr int64_t kPages = 22;  // fewer than three requests need
constexpr int32_t kMaxChoicesHere = 8;
constexpr uint64_t kFurtherChoice = 1000;  // further choices stand under request + 1000 × choice

struct RealAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprob_bits;
  std::vector<Ended> ended;
};

// The model, loaded once for all engines of this test.
class RealModelTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    backend_ = kernels::MakeCpuBackend({.threads = 2}, error);
    ASSERT_NE(backend_, nullptr) << error;
    const kernels::StepProgram& program = model_.program;
    layout_ = kernels::DealLayers(
        program.layer_windows,
        {.block_size = kBlockSize, .kv_heads = program.kv_heads, .head_dim = program.head_dim});
    kernels::ProgramOptions options;
    options.kv = layout_;
    options.page_count = kPages;
    options.max_tokens = 256;
    options.max_rows = kMaxRows;
    options.max_samples = kMaxRows;
    program_ = backend_->Load(program, options);
  }

  // Serves all of them at once, with steps of at most `step_tokens` tokens.
  std::map<uint64_t, RealAnswer> Serve(const std::vector<Submit>& submits, int32_t step_tokens,
                                       Drafter* drafter = nullptr) {
    EngineOptions options;
    options.drafter = drafter;
    options.max_drafts = drafter == nullptr ? 0 : 5;
    options.max_model_len = kMaxModelLen;
    options.max_num_seqs = kMaxRows;
    options.max_num_batched_tokens = step_tokens;
    options.block_size = kBlockSize;
    options.page_count = kPages;
    options.cache_kinds = CacheKindsOf(layout_);
    options.vocab_size = model_.program.vocab_size;
    options.max_choices = kMaxChoicesHere;
    options.on_page_freed = [this](int32_t page) { program_->PoisonPage(page); };
    CpuRunnerOptions runner_options;
    runner_options.limits = {.max_rows = kMaxRows,
                             .max_tokens = MaxStepTokens(kMaxRows, step_tokens, kBlockSize),
                             .max_model_len = kMaxModelLen,
                             .block_size = kBlockSize,
                             .groups = static_cast<int32_t>(layout_.groups.size()),
                             .page_count = kPages,
                             .vocab_size = options.vocab_size};
    runner_options.now_us = [] { return int64_t{0}; };
    CpuRunner runner(*program_, runner_options);
    StepProgress progress;
    Engine engine(options, runner, progress);
    for (const Submit& submit : submits) {
      engine.Apply(SubmitCommand{RouterInstance(1), submit, kNeverMicros}, 1);
    }
    std::map<uint64_t, RealAnswer> answers;
    for (int round = 0; round < 5000; ++round) {
      const EngineOutput output = engine.RunOnce(1);
      engine.CheckInvariants();
      for (const RouterOutput& router : output.routers) Take(router, answers);
      if (output.next_wakeup_us > 1) return answers;
    }
    ADD_FAILURE() << "the engine never comes to rest";
    return answers;
  }

  static void Take(const RouterOutput& router, std::map<uint64_t, RealAnswer>& answers) {
    for (const Output& output : router.outputs) {
      RealAnswer& answer = answers[output.key.request.value() + kFurtherChoice * output.choice];
      ASSERT_EQ(output.first_index, answer.tokens.size());
      ASSERT_EQ(output.logprobs.size(), 1u);
      answer.tokens.push_back(output.ids[0]);
      answer.logprob_bits.push_back(std::bit_cast<uint32_t>(output.logprobs[0]));
    }
    for (const Ended& ended : router.ended) {
      answers[ended.key.request.value() + kFurtherChoice * ended.choice].ended.push_back(ended);
    }
    EXPECT_TRUE(router.refused.empty());
  }

  TinyProgram model_{7};
  std::unique_ptr<kernels::Backend> backend_;
  kernels::KvLayout layout_;
  std::unique_ptr<kernels::LoadedProgram> program_;
};

TEST_F(RealModelTest, BatchedEqualsAloneBitForBit) {
  std::mt19937_64 rng(5);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 12; ++request) {
    Submit& submit = submits.emplace_back();
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.choices.resize(1);
    std::vector<TokenId> prompt(1 + rng() % 90);
    for (TokenId& id : prompt) {
      id = static_cast<TokenId>(rng() % static_cast<uint64_t>(model_.program.vocab_size));
    }
    submit.prompt_ids = std::move(prompt);
    submit.sampling.max_tokens = static_cast<int32_t>(20 + rng() % 50);
    submit.sampling.temperature = request % 3 == 0 ? 0.0f : 0.9f;
    submit.sampling.top_k = request % 2 == 0 ? 40 : 0;
    submit.sampling.top_p = request % 4 == 0 ? 0.9f : 1.0f;
    submit.sampling.repetition_penalty = request % 5 == 0 ? 1.2f : 1.0f;
    submit.sampling.seed = rng();
    submit.sampling.logprobs = 1;
  }
  std::map<uint64_t, RealAnswer> alone;
  for (const Submit& submit : submits) alone.merge(Serve({submit}, 200));
  uint64_t recomputed = 0;
  for (int32_t step_tokens : {200, 23, 7}) {
    SCOPED_TRACE(step_tokens);
    std::map<uint64_t, RealAnswer> together = Serve(submits, step_tokens);
    for (const Submit& submit : submits) {
      const uint64_t request = submit.key.request.value();
      SCOPED_TRACE(request);
      EXPECT_EQ(together[request].tokens, alone[request].tokens);
      EXPECT_EQ(together[request].logprob_bits, alone[request].logprob_bits);
      ASSERT_EQ(together[request].ended.size(), 1u);
      EXPECT_EQ(together[request].tokens.size(), static_cast<size_t>(submit.sampling.max_tokens));
      recomputed += together[request].ended[0].usage.recomputed_tokens;
    }
  }
  EXPECT_GT(recomputed, 0u) << "memory was meant to run out";
}

// A step that verifies drafts has several positions of a row, a draft as well as a sampled token:
// the same bits.
TEST_F(RealModelTest, DraftedEqualsNotDraftedBitForBit) {
  std::mt19937_64 rng(8);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 8; ++request) {
    Submit& submit = submits.emplace_back();
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.choices.resize(1);
    std::vector<TokenId> prompt(1 + rng() % 60);
    for (TokenId& id : prompt) {
      id = static_cast<TokenId>(rng() % static_cast<uint64_t>(model_.program.vocab_size));
    }
    submit.prompt_ids = std::move(prompt);
    submit.sampling.max_tokens = static_cast<int32_t>(20 + rng() % 50);
    submit.sampling.temperature = request % 3 == 0 ? 0.0f : 0.9f;
    submit.sampling.top_k = request % 2 == 0 ? 40 : 0;
    submit.sampling.frequency_penalty = request % 4 == 0 ? 0.3f : 0.0f;
    submit.sampling.seed = rng();
    submit.sampling.logprobs = 1;
  }
  std::map<uint64_t, RealAnswer> alone;
  GuessDrafter drafter(4, model_.program.vocab_size);
  for (const Submit& submit : submits) {
    alone.merge(Serve({submit}, 200));
    drafter.Know(submit.sampling.seed, 0, alone[submit.key.request.value()].tokens);
  }
  uint64_t accepted = 0;
  for (int32_t step_tokens : {200, 9}) {
    SCOPED_TRACE(step_tokens);
    std::map<uint64_t, RealAnswer> together = Serve(submits, step_tokens, &drafter);
    for (const Submit& submit : submits) {
      const uint64_t request = submit.key.request.value();
      SCOPED_TRACE(request);
      EXPECT_EQ(together[request].tokens, alone[request].tokens);
      EXPECT_EQ(together[request].logprob_bits, alone[request].logprob_bits);
      accepted += together[request].ended.at(0).usage.accepted_draft_tokens;
    }
  }
  EXPECT_GT(accepted, 20u);
}

// Choices share the prompt's pages, copy the partial one, are preempted and chunked: each gives the
// bits that it gives with its siblings gone from the start.
TEST_F(RealModelTest, EachOfSeveralChoicesEqualsItAloneBitForBit) {
  std::mt19937_64 rng(6);
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 4; ++request) {
    Submit& submit = submits.emplace_back();
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.choices.resize(request == 1 ? kMaxChoicesHere : 2 + rng() % 4);
    std::vector<TokenId> prompt(request == 2 ? 32 : 2 + rng() % 80);
    for (TokenId& id : prompt) {
      id = static_cast<TokenId>(rng() % static_cast<uint64_t>(model_.program.vocab_size));
    }
    submit.prompt_ids = std::move(prompt);
    submit.sampling.max_tokens = static_cast<int32_t>(4 + rng() % 30);
    submit.sampling.repetition_penalty = request % 2 == 0 ? 1.2f : 1.0f;
    submit.sampling.seed = rng();
    submit.sampling.logprobs = 1;
  }
  std::map<uint64_t, RealAnswer> alone;
  for (const Submit& submit : submits) {
    for (uint32_t choice = 0; choice < submit.choices.size(); ++choice) {
      Submit one = submit;
      for (uint32_t i = 0; i < one.choices.size(); ++i) one.choices[i].ended = i != choice;
      alone.merge(Serve({one}, 200));
    }
  }
  for (int32_t step_tokens : {200, 9}) {
    SCOPED_TRACE(step_tokens);
    std::map<uint64_t, RealAnswer> together = Serve(submits, step_tokens);
    ASSERT_EQ(together.size(), alone.size());
    for (const auto& [slot, answer] : together) {
      SCOPED_TRACE(slot);
      EXPECT_EQ(answer.tokens, alone[slot].tokens);
      EXPECT_EQ(answer.logprob_bits, alone[slot].logprob_bits);
      ASSERT_EQ(answer.ended.size(), 1u);
    }
  }
}

// What the cache saves is what would have been computed.
TEST_F(RealModelTest, HitsEqualMissesBitForBit) {
  std::mt19937_64 rng(6);
  const auto random_id = [&] {
    return static_cast<TokenId>(rng() % static_cast<uint64_t>(model_.program.vocab_size));
  };
  std::vector<TokenId> shared(80);
  for (TokenId& id : shared) id = random_id();
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= 24; ++request) {
    Submit& submit = submits.emplace_back();
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.choices.resize(1);
    std::vector<TokenId> prompt(shared.begin(),
                                shared.begin() + static_cast<ptrdiff_t>(20 + rng() % 60));
    for (uint64_t i = rng() % 3; i > 0; --i) prompt.push_back(random_id());
    submit.prompt_ids = std::move(prompt);
    submit.sampling.max_tokens = 6;
    submit.sampling.seed = rng();
    submit.sampling.logprobs = 1;
  }
  uint64_t cached = 0;
  std::map<uint64_t, RealAnswer> together = Serve(submits, 23);
  for (const Submit& submit : submits) {
    const uint64_t request = submit.key.request.value();
    SCOPED_TRACE(request);
    std::map<uint64_t, RealAnswer> alone = Serve({submit}, 200);
    EXPECT_EQ(together[request].tokens, alone[request].tokens);
    EXPECT_EQ(together[request].logprob_bits, alone[request].logprob_bits);
    ASSERT_EQ(together[request].ended.size(), 1u);
    cached += together[request].ended[0].usage.cached_tokens;
    EXPECT_EQ(alone[request].ended[0].usage.cached_tokens, 0u);
  }
  EXPECT_GT(cached, 200u);
}

}  // namespace
}  // namespace quire::test
