#include "tests/support/engine_sim/sim_scenario.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/runtime/virtual_runtime.h"
#include "tests/support/tag_grammar.h"
#include "tests/support/tag_runner.h"
#include "worker/kv/kv_cache.h"
#include "worker/rpc/attach_session.h"

namespace quire::sim {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;
constexpr int32_t kVocab = 64;
constexpr int64_t kLongest = 112;  // tokens of a request: every one fits alone

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}
  uint64_t Below(uint64_t n) { return rng_.Next() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  int64_t From(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low + 1)));
  }
  TokenId Token() { return static_cast<TokenId>(Below(kVocab)); }

 private:
  VirtualRng rng_;
};

// From barely enough for one request to enough for several.
void DrawPages(Draw& draw, EngineOptions& engine) {
  const KvCache measure({engine.block_size, 1 << 20, engine.cache_kinds}, nullptr);
  const int64_t least = measure.PeakPages(kLongest, engine.block_size);
  engine.page_count = least + draw.From(0, draw.OneIn(2) ? least / 2 : 4 * least);
}

// From a stream of its own, so that other scenarios stay as they were: a hybrid, whose layers keep
// states beside the keys of others.
void DrawStates(uint64_t seed, EngineOptions& engine) {
  Draw draw(seed * 43 + 7);
  if (!draw.OneIn(5)) return;
  engine.cache_kinds = {{0, 1},
                        {.window = engine.block_size + 1,
                         .groups = static_cast<int32_t>(draw.From(1, 2)),
                         .state_interval = static_cast<int32_t>(draw.From(1, 6))}};
  DrawPages(draw, engine);
}

EngineOptions DrawEngine(Draw& draw) {
  EngineOptions engine;
  constexpr int32_t kBlockSizes[] = {1, 2, 4, 16};
  engine.block_size = kBlockSizes[draw.Below(4)];
  engine.max_model_len = static_cast<int32_t>(draw.OneIn(3) ? draw.From(30, 60) : 256);
  engine.max_num_seqs = static_cast<int32_t>(draw.From(1, 8));
  engine.max_num_batched_tokens = static_cast<int32_t>(draw.From(1, draw.OneIn(2) ? 12 : 70));
  engine.max_waiting_requests = static_cast<int32_t>(draw.OneIn(4) ? draw.From(1, 4) : 100);
  engine.max_choices = 3;
  engine.prefix_caching = !draw.OneIn(4);
  if (draw.OneIn(2)) engine.block_hash_mask = 0x3F;  // collisions are misses
  if (draw.OneIn(2)) engine.scheduling_policy = SchedulingPolicy::kPriority;
  if (draw.OneIn(2)) engine.max_step_time_us = draw.From(500, 5000);
  if (!draw.OneIn(4)) engine.snapshot_slice = static_cast<int32_t>(draw.From(1, 40));
  engine.cache_kinds = {{0, 1}, {static_cast<int32_t>(draw.From(2, 30)), 2}};
  if (draw.OneIn(3)) engine.cache_kinds = {{0, 1}};
  if (draw.OneIn(4)) engine.cache_kinds = {{static_cast<int32_t>(draw.From(2, 30)), 1}};
  DrawPages(draw, engine);
  engine.model_id = "tag";
  engine.numerics_id = "tag";
  engine.eos_token_ids = {kVocab - 1};
  engine.vocab_size = kVocab;
  engine.slow_client_timeout_us = draw.From(120, 2000) * kMilli;
  engine.idle_probe_interval_us = draw.From(20, 3000) * kMilli;
  return engine;
}

void DrawSampling(Draw& draw, SamplingParams& sampling) {
  sampling.temperature = draw.OneIn(3) ? 0.0f : 1.0f;
  sampling.ignore_eos = draw.OneIn(2);
  if (draw.OneIn(4)) sampling.top_k = static_cast<int32_t>(draw.From(1, 20));
  if (draw.OneIn(5)) sampling.top_p = 0.8f;
  if (draw.OneIn(6)) sampling.min_p = 0.05f;
  if (draw.OneIn(4)) sampling.frequency_penalty = 1.5f;
  if (draw.OneIn(4)) sampling.presence_penalty = 0.7f;
  if (draw.OneIn(4)) sampling.repetition_penalty = 1.3f;
  if (draw.OneIn(4)) {  // and then it would end soon
    sampling.min_tokens = sampling.max_tokens / 2;
    for (int i = 0; i < 10; ++i) sampling.stop_token_ids.push_back(draw.Token());
  }
  if (draw.OneIn(4)) sampling.stop_token_ids = {draw.Token(), draw.Token()};
  if (draw.OneIn(5)) {
    const TokenId biased = draw.Token();
    sampling.logit_bias = {{biased, 3.0f}, {(biased + 7) % kVocab, -4.0f}};
  }
  if (draw.OneIn(6)) sampling.bad_words = {{draw.Token()}, {draw.Token(), draw.Token()}};
  if (draw.OneIn(8)) {
    for (int i = 0; i < 20; ++i) sampling.allowed_token_ids.push_back(draw.Token());
  }
  if (draw.OneIn(2)) sampling.logprobs = static_cast<int32_t>(draw.From(1, 4));
}

void DrawBeamSearch(Draw& draw, Submit& submit) {
  SamplingParams beams;
  beams.max_tokens = submit.sampling.max_tokens;
  beams.seed = submit.sampling.seed;
  beams.ignore_eos = draw.OneIn(2);
  beams.beam_width = static_cast<int32_t>(draw.From(1, 5));
  beams.length_penalty = static_cast<float>(draw.From(-1, 3)) * 0.7f;
  beams.early_stopping = static_cast<EarlyStopping>(draw.Below(3));
  if (draw.OneIn(2)) beams.stop_token_ids = {draw.Token(), draw.Token(), draw.Token()};
  if (draw.OneIn(4)) beams.min_tokens = beams.max_tokens / 2;
  if (draw.OneIn(2)) beams.logprobs = static_cast<int32_t>(draw.From(1, 4));
  submit.sampling = beams;
  submit.choices.resize(std::min(submit.choices.size(), static_cast<size_t>(beams.beam_width)));
}

// From the request's own seed, so that the rest of the scenario does not depend on it.
void DrawPromptLogprobs(SamplingParams& sampling) {
  Draw draw(sampling.seed + 5);
  if (sampling.beam_width > 0 || !draw.OneIn(5)) return;
  sampling.prompt_logprobs = static_cast<int32_t>(draw.From(1, 4));
  if (!draw.OneIn(5)) return;
  sampling.max_tokens = 0;  // nothing else is wanted
  sampling.min_tokens = 0;
}

// The same.
void DrawAdapter(Submit& submit) {
  Draw draw(submit.sampling.seed + 13);
  if (draw.OneIn(2)) return;
  submit.adapter = test::TagAdapterDigest(static_cast<int>(draw.Below(test::kTagAdapters)));
}

// The same. Some cannot be compiled, which a worker finds out when it tries.
void DrawConstraint(Submit& submit, bool& bad) {
  Draw draw(submit.sampling.seed + 9);
  if (submit.sampling.beam_width > 0 || !draw.OneIn(3)) return;
  const auto constraints = test::TagConstraints();
  submit.constraint = constraints[draw.Below(constraints.size())];
  submit.sampling.max_tokens = std::max(submit.sampling.max_tokens, 1);
  if (!draw.OneIn(12)) return;
  submit.constraint.source = "[" + submit.constraint.source + "\\";
  bad = true;
}

// The same. Under a grammar the end of a thought is one token, which may not fit it.
void DrawThoughtBudget(Submit& submit) {
  Draw draw(submit.sampling.seed + 11);
  if (submit.sampling.beam_width > 0 || !draw.OneIn(5)) return;
  auto budget = std::make_shared<ThoughtBudget>();
  budget->tokens = static_cast<uint32_t>(draw.From(0, 6));
  budget->opened = draw.OneIn(2);
  budget->repeats = draw.OneIn(2);
  for (int i = 0; i < 12; ++i) budget->opens.push_back({draw.Token()});
  budget->closes = {{draw.Token()}, {draw.Token(), draw.Token()}};
  const bool constrained = submit.constraint.kind != ConstraintKind::kNone;
  for (int64_t i = draw.From(1, constrained ? 1 : 3); i > 0; --i) {
    budget->end.push_back(draw.Token());
  }
  submit.thought_budget = std::move(budget);
}

void DrawClient(Draw& draw, RequestPlan& plan) {
  if (draw.OneIn(2)) {
    plan.submit.initial_window = static_cast<uint32_t>(draw.From(1, 10));
    plan.grant_lag = draw.From(0, draw.OneIn(2) ? 20 : 80) * kMilli;
    plan.grant_step = static_cast<uint64_t>(draw.OneIn(2) ? 1 : draw.From(2, 9));
    if (draw.OneIn(8)) plan.stalls_at = draw.From(0, 20);
  }
  if (draw.OneIn(5)) plan.cancels_after = draw.From(0, 200) * kMilli;
  plan.cancels_one_choice = draw.OneIn(2);
  if (draw.OneIn(6)) plan.finishes_at = draw.From(1, 20);
  if (draw.OneIn(8)) plan.retries_after = draw.From(0, 150) * kMilli;
  if (draw.OneIn(6)) plan.deadline_after = draw.From(2, 300) * kMilli;
  plan.repeats_live = draw.OneIn(8);
  plan.repeats_ended = draw.OneIn(8);
}

RequestPlan DrawRequest(Draw& draw, const Scenario& scenario) {
  RequestPlan plan;
  plan.router = static_cast<int>(draw.Below(static_cast<uint64_t>(scenario.routers)));
  plan.starts_at = draw.From(0, draw.OneIn(2) ? 20 : 600) * kMilli;
  Submit& submit = plan.submit;
  submit.model_id = scenario.engine.model_id;
  const int64_t length =
      std::min<int64_t>(draw.From(1, draw.OneIn(3) ? 64 : 24), scenario.engine.max_model_len - 1);
  // Few different openings, so that prefixes are shared.
  const uint64_t opening = draw.Below(3);
  const int64_t shared = draw.From(0, length);
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < length; ++i) {
    prompt.push_back(
        i < shared ? static_cast<TokenId>((opening * 31 + static_cast<uint64_t>(i) * 7) % kVocab)
                   : draw.Token());
  }
  submit.prompt_ids = std::move(prompt);
  if (!scenario.requests.empty() && draw.OneIn(4)) {  // the same question, perhaps at the same time
    const RequestPlan& other = scenario.requests[draw.Below(scenario.requests.size())];
    if (!other.bad) submit.prompt_ids = other.submit.prompt_ids;
    if (draw.OneIn(2)) plan.starts_at = other.starts_at;
  }
  submit.sampling.max_tokens = static_cast<int32_t>(draw.From(1, draw.OneIn(4) ? 48 : 20));
  submit.sampling.seed = draw.Below(uint64_t{1} << 48);
  const uint64_t salt = submit.sampling.seed % kSalts;
  if (salt != 0) submit.salt = "salt " + std::to_string(salt);
  DrawSampling(draw, submit.sampling);
  submit.choices.resize(draw.OneIn(3) ? static_cast<size_t>(draw.From(2, 3)) : 1);
  if (draw.OneIn(10)) DrawBeamSearch(draw, submit);
  submit.priority = static_cast<int32_t>(draw.Below(2));
  submit.tenant = draw.OneIn(2) ? "a" : "b";
  DrawClient(draw, plan);
  DrawPromptLogprobs(submit.sampling);
  DrawConstraint(submit, plan.bad);
  DrawThoughtBudget(submit);
  DrawAdapter(submit);
  if (draw.OneIn(20)) {
    plan.bad = true;
    switch (draw.Below(4)) {
      case 0:
        prompt.assign(submit.prompt_ids.begin(), submit.prompt_ids.end());
        prompt.back() = kVocab;
        submit.prompt_ids = std::move(prompt);
        break;
      case 1:
        submit.model_id = "another";
        break;
      case 2:
        submit.required_features = {"no such feature"};
        break;
      default:
        prompt.assign(submit.prompt_ids.begin(), submit.prompt_ids.end());
        prompt.resize(256, 1);
        submit.prompt_ids = std::move(prompt);
        break;
    }
  }
  return plan;
}

// From a stream of its own, so that the rest of the scenario does not depend on it. A worker that
// drains is leaving: nobody waits for its device.
void DrawLostDevices(Scenario& scenario) {
  Draw draw(scenario.seed * 31 + 17);
  if (scenario.drains_at >= 0 || !draw.OneIn(8)) return;
  for (int64_t i = draw.From(1, 2); i > 0; --i) {
    FaultPlan& fault = scenario.faults.emplace_back();
    fault.kind = FaultPlan::Kind::kLoseDevice;
    fault.at = draw.From(0, draw.OneIn(2) ? 50 : 400) * kMilli;
    fault.looks = static_cast<int>(draw.From(1, 10));
  }
}

// The same.
void DrawDrafts(Scenario& scenario) {
  Draw draw(scenario.seed * 29 + 23);
  scenario.engine.forced_tokens = scenario.seed % 4 != 1;
  if (draw.OneIn(4)) return;
  scenario.engine.max_drafts = static_cast<int32_t>(draw.From(1, 6));
  scenario.wrong_drafts = draw.OneIn(8) ? 0 : static_cast<uint64_t>(draw.From(2, 9));
  const bool states =
      std::ranges::any_of(scenario.engine.cache_kinds, &CacheKindShape::HoldsStates);
  if (states || !draw.OneIn(3)) return;
  scenario.draft_pages = draw.From(10, 160);
  scenario.other_draft_model = draw.OneIn(2);
}

// The same.
void DrawAdapterMoves(Scenario& scenario) {
  Draw draw(scenario.seed * 37 + 41);
  if (draw.OneIn(2)) return;
  for (int64_t i = draw.From(1, 8); i > 0; --i) {
    scenario.adapter_moves.push_back(draw.From(0, draw.OneIn(2) ? 50 : 400) * kMilli);
  }
}

FollowPlan DrawFollow(Draw& draw) {
  FollowPlan plan;
  plan.wants_events = !draw.OneIn(4);
  plan.asks_after = draw.From(0, 40) * kMilli;
  for (uint64_t i = draw.Below(6); i > 0; --i) {
    plan.asks_also.push_back(draw.From(0, draw.OneIn(2) ? 80 : 600) * kMilli);
  }
  return plan;
}

}  // namespace

Scenario DrawScenario(uint64_t seed) {
  Draw draw(seed * 0x9E3779B97F4A7C15ull + 11);
  Scenario scenario;
  scenario.seed = seed;
  scenario.engine = DrawEngine(draw);
  DrawStates(seed, scenario.engine);
  scenario.max_in_flight = static_cast<int>(draw.From(1, 2));
  scenario.compile_us = static_cast<Micros>(seed % 7) * 3 * kMilli;
  scenario.routers = static_cast<int>(draw.From(1, 3));
  for (int i = 0; i < scenario.routers; ++i) scenario.follows.push_back(DrawFollow(draw));
  scenario.max_unsent_hashes =
      draw.OneIn(3) ? static_cast<size_t>(draw.From(1, 30)) : kMaxUnsentHashes;
  scenario.step_base_us = draw.From(100, draw.OneIn(4) ? 20'000 : 3000);
  scenario.step_token_us = draw.From(0, 60);
  const int64_t requests = draw.From(3, 12);
  for (int64_t i = 0; i < requests; ++i) scenario.requests.push_back(DrawRequest(draw, scenario));
  if (draw.OneIn(4)) scenario.requests[draw.Below(scenario.requests.size())].nan = true;
  const int64_t faults = draw.OneIn(4) ? 0 : draw.From(1, 3);
  for (int64_t i = 0; i < faults; ++i) {
    FaultPlan& fault = scenario.faults.emplace_back();
    fault.kind = static_cast<FaultPlan::Kind>(draw.Below(FaultPlan::kKinds));
    fault.router = static_cast<int>(draw.Below(static_cast<uint64_t>(scenario.routers)));
    fault.at = draw.From(0, draw.OneIn(2) ? 50 : 400) * kMilli;
    fault.lasts = draw.From(1, draw.OneIn(4) ? 6000 : 100) * kMilli;
    if (fault.kind != FaultPlan::Kind::kFreeze) continue;
    // A Submit whose deadline passes before the engine gets to see it.
    RequestPlan& late = scenario.requests[static_cast<size_t>(i)];
    late.starts_at = fault.at;
    late.deadline_after = std::max(2 * kMilli, fault.lasts / 2);
  }
  if (draw.OneIn(5)) {
    scenario.drains_at = draw.From(0, 400) * kMilli;
    scenario.drain_grace = draw.From(0, 200) * kMilli;
  }
  DrawLostDevices(scenario);
  DrawDrafts(scenario);
  DrawAdapterMoves(scenario);
  return scenario;
}

}  // namespace quire::sim
