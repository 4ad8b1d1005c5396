#include "tests/worker/steady/steady_world.h"

#include <gtest/gtest.h>

#include <random>

#include "worker/scheduler/scheduler.h"

namespace quire::test {
namespace {

constexpr uint64_t kRouters = 3;
constexpr uint32_t kWindow = 40;

void AskForSampling(uint64_t request, SamplingParams& sampling) {
  sampling.seed = request;
  sampling.temperature = request % 3 == 0 ? 0.0f : 1.0f;
  sampling.top_k = request % 5 == 0 ? 10 : 0;
  sampling.top_p = request % 5 == 1 ? 0.8f : 1.0f;
  sampling.min_p = request % 5 == 2 ? 0.05f : 0.0f;
  sampling.typical_p = request % 5 == 3 ? 0.7f : 1.0f;
  sampling.logprobs = request % 4 == 0 ? static_cast<int32_t>(request / 4 % 22) : 0;
  sampling.repetition_penalty = request % 7 == 0 ? 1.1f : 1.0f;
  sampling.frequency_penalty = request % 7 == 1 ? 0.2f : 0.0f;
  sampling.presence_penalty = request % 7 == 2 ? 0.2f : 0.0f;
  if (request % 6 == 0) sampling.logit_bias = {{3, 1.0f}, {9, -1.0f}};
  if (request % 6 == 1) sampling.bad_words = {{4}, {5, 6}, {7, 8, 9}};
  if (request % 6 == 2) sampling.allowed_token_ids = {1, 2, 3, 5, 8, 13, 21};
}

}  // namespace

SubmitCommand SteadyAsk(uint64_t request, const SteadyOptions& options) {
  std::mt19937_64 rng(request);
  SubmitCommand command;
  command.router = RouterInstance(1 + request % kRouters);
  quire::Submit& submit = command.submit;
  submit.key = {RequestNumber(request), Attempt(1)};
  submit.submit_number = request;
  submit.model_id = "steady";
  submit.tenant = request % 2 == 0 ? "even" : "odd";
  std::vector<TokenId> prompt(1 + rng() % static_cast<uint64_t>(options.max_prompt));
  for (TokenId& id : prompt) {
    id = static_cast<TokenId>(rng() % static_cast<uint64_t>(options.vocab_size));
  }
  submit.prompt_ids = std::move(prompt);
  submit.choices.resize(1);
  AskForSampling(request, submit.sampling);
  submit.sampling.max_tokens = options.max_model_len;
  submit.sampling.min_tokens = request % 8 == 0 ? options.max_model_len : 0;
  // Ids that end it: none that can come, or one that min_tokens keeps away.
  submit.sampling.ignore_eos = true;
  if (request % 8 == 0) submit.sampling.stop_token_ids = {11, 12};
  submit.initial_window = request % 2 == 0 ? kWindow : 0;
  return command;
}

SteadyWorld::SteadyWorld(kernels::LoadedProgram& program, const SteadyOptions& steady)
    : options(steady), engine_metrics(metrics) {
  engine_options.max_model_len = options.max_model_len;
  engine_options.max_num_seqs = options.rows;
  engine_options.max_waiting_requests = 2 * options.rows;
  engine_options.block_size = options.block_size;
  engine_options.cache_kinds = options.cache_kinds;
  engine_options.page_count = options.page_count;
  engine_options.model_id = "steady";
  engine_options.vocab_size = options.vocab_size;
  engine_options.metrics = &engine_metrics;
  engine_options.masks = options.masks;
  int32_t groups = 0;
  for (const CacheKindShape& kind : options.cache_kinds) groups += kind.groups;
  CpuRunnerOptions runner_options;
  runner_options.limits = {
      .max_rows = options.rows,
      .max_tokens =
          MaxStepTokens(options.rows, engine_options.max_num_batched_tokens, options.block_size),
      .max_model_len = options.max_model_len,
      .block_size = options.block_size,
      .groups = groups,
      .page_count = options.page_count,
      .vocab_size = options.vocab_size};
  runner_options.max_in_flight = options.max_in_flight;
  runner_options.masks = options.masks;
  runner_options.now_us = [] { return int64_t{0}; };
  runner = std::make_unique<CpuRunner>(program, runner_options);
  engine = std::make_unique<Engine>(engine_options, *runner, progress);
}

void SteadyWorld::Submit() {
  for (uint64_t router = 1; router <= kRouters; ++router) {
    engine->Apply(WatchCommand{RouterInstance(router)}, now_us);
  }
  for (uint64_t request = 1; request <= static_cast<uint64_t>(options.rows); ++request) {
    SubmitCommand command = SteadyAsk(request, options);
    if (options.grammar != nullptr) {
      command.submit.constraint.kind = ConstraintKind::kRegex;
      command.grammar = options.grammar;
    }
    engine->Apply(std::move(command), now_us);
  }
}

void SteadyWorld::Step() {
  engine->RunOnce(++now_us, output);
  for (const RouterOutput& router : output.routers) {
    for (const Output& told : router.outputs) {
      tokens += told.ids.size();
      tops += told.top.size();
      if (told.key.request.value() % 2 != 0 || told.first_index % 16 != 0) continue;
      engine->Apply(GrantCommand{router.router, {told.key, 0, told.first_index + kWindow}}, now_us);
    }
  }
  for (const CacheEvents& event : output.events) {
    (event.kind == CacheEvents::Kind::kStored ? stored : removed) += event.hashes.size();
  }
}

void SteadyWorld::WarmUp(int rounds) {
  do {
    Step();
  } while (output.load.waiting_requests > 0 || output.load.running_prefill_tokens > 0);
  for (int round = 0; round < rounds; ++round) Step();
  ASSERT_EQ(output.load.running_rows, static_cast<uint32_t>(options.rows));
}

}  // namespace quire::test
