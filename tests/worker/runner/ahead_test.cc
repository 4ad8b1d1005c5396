// Steps that are launched before the samples of the one before are known give the answers of steps
// that wait, whatever rows do in the meantime.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/tag_runner.h"
#include "worker/engine/engine.h"
#include "worker/scheduler/scheduler.h"

namespace quire::test {
namespace {

constexpr int32_t kRows = 5;
constexpr int32_t kVocab = 64;

// The tag model on a device that keeps the last samples of slots itself, and tells samples late.
class AheadProgram final : public kernels::LoadedProgram {
 public:
  AheadProgram(const CacheShape& cache, int32_t vocab_size)
      : works_(cache, vocab_size), last_(kRows, -1) {}
  void Run(const kernels::StepBatch& batch) override { works_.Run(batch); }
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float>) override { Run(batch); }
  int MaxInFlight() const override { return 2; }
  void Launch(const kernels::StepBatch& batch) override {
    ASSERT_LT(flights_.size(), 2u);
    most_in_flight = std::max(most_in_flight, flights_.size() + 1);
    std::vector<int32_t> tokens(batch.tokens.begin(), batch.tokens.end());
    for (int32_t& token : tokens) {
      if (token >= 0) continue;
      ++taken_from_slots;
      token = last_[static_cast<size_t>(-1 - token)];
      ASSERT_GE(token, 0);
    }
    std::vector<kernels::SampleOutput>& outputs = flights_.emplace_back(batch.sample_rows.size());
    kernels::StepBatch known = batch;
    known.tokens = tokens;
    known.sample_outputs = outputs;
    works_.Run(known);
    for (size_t i = 0; i < batch.sample_slots.size(); ++i) {
      if (batch.sample_slots[i] >= 0) {
        last_[static_cast<size_t>(batch.sample_slots[i])] = std::max(0, outputs[i].token);
      }
    }
  }
  void Collect(std::span<kernels::SampleOutput> outputs) override {
    ASSERT_FALSE(flights_.empty());
    ASSERT_EQ(outputs.size(), flights_.front().size());
    std::copy(flights_.front().begin(), flights_.front().end(), outputs.begin());
    flights_.pop_front();
  }
  void PoisonPage(int32_t page) override { works_.PoisonPage(page); }
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return 0; }

  size_t most_in_flight = 0;
  int taken_from_slots = 0;

 private:
  TagProgram works_;
  std::vector<int32_t> last_;
  std::deque<std::vector<kernels::SampleOutput>> flights_;
};

std::vector<SubmitCommand> RandomRequests(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_in = [&random](uint64_t n) { return random() % n == 0; };
  std::vector<SubmitCommand> commands;
  for (uint64_t request = 1; request <= 14; ++request) {
    SubmitCommand& command = commands.emplace_back();
    command.router = RouterInstance(1);
    Submit& submit = command.submit;
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.submit_number = request;
    submit.model_id = "tag";
    std::vector<TokenId> prompt(1 + random() % 14);
    for (TokenId& token : prompt) token = static_cast<TokenId>(random() % kVocab);
    submit.prompt_ids = std::move(prompt);
    submit.choices.resize(one_in(4) ? 2 : 1);
    submit.initial_window = one_in(3) ? 4 : 0;
    SamplingParams& sampling = submit.sampling;
    sampling.max_tokens = static_cast<int32_t>(1 + random() % 16);
    sampling.temperature = one_in(3) ? 0.0f : 0.8f;
    sampling.seed = random();
    sampling.logprobs = 1;
    if (one_in(3)) sampling.repetition_penalty = 1.4f;
    if (one_in(3)) sampling.bad_words = {{3}, {7, 9}, {2, 5, 11}};
    if (one_in(3)) sampling.min_tokens = sampling.max_tokens / 2;
    if (one_in(2)) sampling.stop_token_ids = {5, 6, 40, 41, 42};
    if (one_in(4)) sampling.prompt_logprobs = 1;
  }
  return commands;
}

struct Served {
  std::map<std::pair<uint64_t, uint32_t>, std::vector<TokenId>> tokens;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<float>> logprobs;
  std::map<std::pair<uint64_t, uint32_t>, EndReason> ends;
  bool operator==(const Served&) const = default;
};

struct Setup {
  int64_t pages = 200;
  int in_flight = 1;
};

Served Serve(uint64_t seed, const Setup& setup, AheadProgram* seen = nullptr) {
  EngineOptions options;
  options.max_model_len = 48;
  options.max_num_seqs = kRows;
  options.max_num_batched_tokens = 12;
  options.block_size = 4;
  options.page_count = setup.pages;
  options.cache_kinds = {{0, 1}, {8, 2}};
  options.max_choices = 2;
  options.model_id = "tag";
  options.vocab_size = kVocab;
  AheadProgram own({options.block_size, options.page_count, options.cache_kinds}, kVocab);
  AheadProgram& program = seen == nullptr ? own : *seen;
  options.on_page_freed = [&program](int32_t page) { program.PoisonPage(page); };
  CpuRunnerOptions runner_options;
  runner_options.limits = {.max_rows = kRows,
                           .max_tokens = MaxStepTokens(kRows, 12, options.block_size),
                           .max_model_len = options.max_model_len,
                           .block_size = options.block_size,
                           .groups = 3,
                           .page_count = options.page_count,
                           .vocab_size = kVocab};
  runner_options.max_in_flight = setup.in_flight;
  runner_options.now_us = [] { return int64_t{0}; };
  CpuRunner runner(program, runner_options);
  StepProgress progress;
  Engine engine(options, runner, progress);
  size_t open = 0;
  Served served;
  for (SubmitCommand& command : RandomRequests(seed)) {
    open += command.submit.choices.size();
    engine.Apply(std::move(command), 1);
  }
  for (int round = 0; open > 0 && round < 5000; ++round) {
    const EngineOutput output = engine.RunOnce(round + 1);
    engine.CheckInvariants();
    for (const RouterOutput& router : output.routers) {
      EXPECT_TRUE(router.refused.empty());
      for (const Output& part : router.outputs) {
        const auto key = std::pair{part.key.request.value(), part.choice};
        std::vector<TokenId>& tokens = served.tokens[key];
        EXPECT_EQ(part.first_index, tokens.size());
        tokens.insert(tokens.end(), part.ids.begin(), part.ids.end());
        std::vector<float>& logprobs = served.logprobs[key];
        logprobs.insert(logprobs.end(), part.logprobs.begin(), part.logprobs.end());
        engine.Apply(GrantCommand{RouterInstance(1), {part.key, part.choice, tokens.size() + 4}},
                     round + 1);
      }
      for (const Ended& ended : router.ended) {
        served.ends[{ended.key.request.value(), ended.choice}] = ended.reason;
        --open;
      }
    }
  }
  EXPECT_EQ(open, 0u) << "requests wait for ever";
  return served;
}

TEST(AheadTest, AnswersAreThoseOfStepsThatWait) {
  int ahead = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const Served waiting = Serve(seed, {});
    for (const int64_t pages : {200, 50}) {
      AheadProgram program({4, pages, {{0, 1}, {8, 2}}}, kVocab);
      ASSERT_EQ(Serve(seed, {pages, 2}, &program), waiting) << pages;
      EXPECT_LE(program.most_in_flight, 2u);
      ahead += program.taken_from_slots;
    }
  }
  // Steps with penalised rows wait; there are some without.
  EXPECT_GT(ahead, 100);
}

}  // namespace
}  // namespace quire::test
