// An engine over the tag model, driven by hand in virtual time, with its outputs gathered per
// request.
//
// CheckInvariants runs after every call. A token that comes out of order fails the test at once.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/tag_adapters.h"
#include "tests/support/tag_grammar.h"
#include "tests/support/tag_runner.h"
#include "worker/constrain/mask_pool.h"
#include "worker/engine/engine.h"
#include "worker/scheduler/scheduler.h"

namespace quire::test {

// Seeds that random tests live; fewer where a device is emulated.
#ifndef QUIRE_ENGINE_SEEDS
#define QUIRE_ENGINE_SEEDS 40
#endif
inline constexpr uint64_t kSeeds = QUIRE_ENGINE_SEEDS;
inline constexpr bool kAllSeeds = kSeeds >= 40;

struct HarnessOptions {
  EngineOptions engine;
  int max_in_flight = 1;
  std::function<int64_t(int64_t tokens)> step_micros;
  std::function<uint64_t(uint64_t seed)> salt_of_seed;  // see TagRunnerOptions
  std::function<int64_t(const StepPlan&)> plan_micros;
  int mask_threads = -1;  // none: no constraints
  size_t mask_bytes = size_t{128} << 20;
};

inline HarnessOptions SmallEngine() {
  HarnessOptions options;
  options.engine.max_model_len = 256;
  options.engine.max_num_seqs = 8;
  options.engine.max_num_batched_tokens = 64;
  options.engine.max_waiting_requests = 100;
  options.engine.block_size = 4;
  options.engine.page_count = 512;
  options.engine.cache_kinds = {{0, 1}, {9, 2}};
  options.engine.model_id = "tag";
  options.engine.eos_token_ids = {63};
  options.engine.vocab_size = 64;
  return options;
}

// Full attention beside states.
inline std::vector<CacheKindShape> RandomStates(std::mt19937_64& rng, const EngineOptions& engine) {
  return {{0, 1},
          {.window = engine.block_size + 1,
           .groups = static_cast<int32_t>(1 + rng() % 3),
           .state_interval = static_cast<int32_t>(1 + rng() % 9)}};
}

struct Answer {
  std::vector<TokenId> tokens;                       // of the first choice
  std::map<uint32_t, std::vector<TokenId>> further;  // of the others
  std::map<uint32_t, std::vector<float>> logprobs;   // by choice, of the tokens sampled here
  uint64_t accepted_predictions = 0;                 // as outputs told
  uint64_t rejected_predictions = 0;
  std::vector<Ended> ended;
  std::vector<Refused> refused;
  int admitted = 0;
  PromptLogprobs prompt;  // all parts together; first_position is 1
  Admitted admission;     // the last one

  std::vector<TokenId>& of(uint32_t choice) { return choice == 0 ? tokens : further[choice]; }
  const Ended* end_of(uint32_t choice) const {
    for (const Ended& end : ended) {
      if (end.choice == choice) return &end;
    }
    return nullptr;
  }
};

class Harness {
 public:
  explicit Harness(HarnessOptions options) : options_(std::move(options)) {
    EngineOptions& engine = options_.engine;
    TagRunnerOptions runner = RunnerOptionsFor(engine);
    runner.max_in_flight = options_.max_in_flight;
    runner.step_micros = options_.step_micros;
    runner.salt_of_seed = options_.salt_of_seed;
    runner.plan_micros = options_.plan_micros;
    if (const AdapterTable* adapters = engine.adapters) {
      runner.salt_of_slot = [adapters](int32_t slot) { return TagSlotSalt(*adapters, slot); };
    }
    if (options_.mask_threads >= 0) {
      masks_ = std::make_unique<MaskPool>(MaskPoolOptions{.threads = options_.mask_threads,
                                                          .vocab_size = engine.vocab_size,
                                                          .max_bytes = options_.mask_bytes});
      runner.masks = engine.masks = masks_.get();
    }
    runner_ = std::make_unique<TagRunner>(runner);
    engine.on_page_freed = [this](int32_t page) { runner_->program().PoisonPage(page); };
    engine_ = std::make_unique<Engine>(engine, *runner_, progress_);
  }

  Submit MakeSubmit(uint64_t request, std::vector<TokenId> prompt, int32_t max_tokens) const {
    Submit submit;
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.submit_number = request;
    submit.prompt_ids = std::move(prompt);
    submit.choices.resize(1);
    submit.sampling.max_tokens = max_tokens;
    submit.sampling.seed = request * 1000 + 7;
    submit.model_id = options_.engine.model_id;
    return submit;
  }

  void Send(Submit submit, int64_t deadline_us = kNeverMicros,
            RouterInstance router = RouterInstance(1)) {
    for (uint32_t i = 0; i < submit.choices.size(); ++i) {
      answers_[submit.key.request.value()].of(i) = submit.choices[i].outputs;
    }
    SubmitCommand command{router, std::move(submit), deadline_us};
    const Constraint& constraint = command.submit.constraint;
    const bool compiles = masks_ != nullptr && constraint.kind != ConstraintKind::kNone;
    if (compiles) command.grammar = TagGrammar(constraint);
    engine_->Apply(std::move(command), now_us);
  }
  // The same, whose grammar comes with the GrammarCommand of that number.
  void SendCompiling(Submit submit, uint64_t number, int64_t deadline_us = kNeverMicros) {
    SubmitCommand command{RouterInstance(1), std::move(submit), deadline_us};
    command.compiling = number;
    engine_->Apply(std::move(command), now_us);
  }
  void Apply(EngineCommand command) { engine_->Apply(std::move(command), now_us); }
  void Cancel(uint64_t request) {
    Apply(CancelCommand{RouterInstance(1), {{RequestNumber(request), Attempt(1)}, false, 0}});
  }
  void GrantUpTo(uint64_t request, uint64_t up_to, uint32_t choice = 0) {
    Apply(GrantCommand{RouterInstance(1), {{RequestNumber(request), Attempt(1)}, choice, up_to}});
  }

  // One round; leaves its outputs in `last`.
  void OnceRaw() {
    last = engine_->RunOnce(now_us);
    engine_->CheckInvariants();
    records.insert(records.end(), last.records.begin(), last.records.end());
  }
  // One round; takes its outputs.
  const EngineOutput& Once() {
    OnceRaw();
    for (const RouterOutput& router : last.routers) Take(router);
    return last;
  }
  // Rounds, following the wake-ups, until the next one is beyond `until_us` from now.
  void RunFor(int64_t until_us) {
    const int64_t end = now_us + until_us;
    for (int rounds = 0; rounds < 100000; ++rounds) {
      Once();
      if (last.next_wakeup_us > end) return;
      now_us = std::max(now_us, last.next_wakeup_us);
    }
    FAIL() << "the engine never comes to rest";
  }

  // At rest: what attempts were billed is what the engine did, also those whose router is lost.
  void ExpectBooksBalance() {
    AttemptUsage sum;
    for (const AttemptRecord& record : records) {
      EXPECT_NE(record.reason, EndReason::kUnspecified);
      EXPECT_GE(std::min({record.queue_us, record.prefill_us, record.decode_us}), 0);
      sum.prompt_tokens += record.usage.prompt_tokens;
      sum.cached_tokens += record.usage.cached_tokens;
      sum.computed_tokens += record.usage.computed_tokens;
      sum.recomputed_tokens += record.usage.recomputed_tokens;
      sum.generated_tokens += record.usage.generated_tokens;
      sum.discarded_tokens += record.usage.discarded_tokens;
      sum.draft_tokens += record.usage.draft_tokens;
      sum.accepted_draft_tokens += record.usage.accepted_draft_tokens;
    }
    const EngineTotals& totals = engine_->totals();
    EXPECT_EQ(totals.attempts, records.size());
    EXPECT_EQ(totals.prompt_tokens, sum.prompt_tokens);
    EXPECT_EQ(totals.scheduler.cached_tokens, sum.cached_tokens);
    EXPECT_EQ(totals.scheduler.computed_tokens, sum.computed_tokens);
    EXPECT_EQ(totals.scheduler.recomputed_tokens, sum.recomputed_tokens);
    EXPECT_EQ(totals.generated_tokens, sum.generated_tokens);
    EXPECT_EQ(totals.discarded_tokens, sum.discarded_tokens);
    EXPECT_EQ(totals.draft_tokens, sum.draft_tokens);
    EXPECT_EQ(totals.accepted_draft_tokens, sum.accepted_draft_tokens);
  }

  Answer& answer(uint64_t request) { return answers_[request]; }
  TagRunner& runner() { return *runner_; }
  Engine& engine() { return *engine_; }
  MaskPool& masks() { return *masks_; }
  const StepProgress& progress() const { return progress_; }
  const EngineOptions& options() const { return options_.engine; }

  int64_t now_us = 1'000'000;
  EngineOutput last;
  std::vector<AttemptRecord> records;  // of all rounds

 private:
  void Take(const RouterOutput& router) {
    for (const Admitted& admitted : router.admitted) {
      Answer& answer = answers_[admitted.key.request.value()];
      ++answer.admitted;
      answer.admission = admitted;
    }
    for (const PromptLogprobs& part : router.prompt_logprobs) TakePrompt(part);
    for (const Output& output : router.outputs) {
      Answer& answer = answers_[output.key.request.value()];
      ASSERT_EQ(answer.end_of(output.choice), nullptr) << "a token after the end";
      std::vector<TokenId>& tokens = answer.of(output.choice);
      ASSERT_EQ(output.first_index, tokens.size());
      answer.accepted_predictions += output.accepted_prediction_tokens;
      answer.rejected_predictions += output.rejected_prediction_tokens;
      tokens.insert(tokens.end(), output.ids.begin(), output.ids.end());
      std::vector<float>& logprobs = answer.logprobs[output.choice];
      logprobs.insert(logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    }
    for (const Ended& ended : router.ended)
      answers_[ended.key.request.value()].ended.push_back(ended);
    for (const Refused& refused : router.refused) {
      answers_[refused.key.request.value()].refused.push_back(refused);
    }
  }

  void TakePrompt(const PromptLogprobs& part) {
    Answer& answer = answers_[part.key.request.value()];
    ASSERT_TRUE(answer.ended.empty() && answer.tokens.empty());
    ASSERT_EQ(part.first_position, answer.prompt.logprobs.size() + 1);
    ASSERT_EQ(part.ranks.size(), part.logprobs.size());
    answer.prompt.first_position = 1;
    const auto append = [](const auto& from, auto& to) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(part.logprobs, answer.prompt.logprobs);
    append(part.ranks, answer.prompt.ranks);
    append(part.top, answer.prompt.top);
  }

  HarnessOptions options_;
  StepProgress progress_;
  std::unique_ptr<MaskPool> masks_;
  std::unique_ptr<TagRunner> runner_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, Answer> answers_;
};

inline std::vector<TokenId> RandomPrompt(std::mt19937_64& rng, size_t length, int32_t vocab = 64) {
  std::vector<TokenId> prompt(length);
  for (TokenId& token : prompt) token = static_cast<TokenId>(rng() % static_cast<uint64_t>(vocab));
  return prompt;
}

// The answer of an engine that serves this request alone, in one chunk, token by token.
inline Answer Solo(HarnessOptions options, const Submit& submit) {
  options.max_in_flight = 1;
  options.step_micros = nullptr;
  options.engine.drafter = nullptr;
  options.engine.forced_tokens = false;
  options.engine.max_num_batched_tokens = options.engine.max_model_len;
  options.engine.page_count = 4096;
  Harness harness(options);
  harness.Send(submit);
  harness.RunFor(0);
  return harness.answer(submit.key.request.value());
}

}  // namespace quire::test
