// Prompt logprobs of every family, through the engine, against those of the reference
// implementation (models/make_prompt_logprobs.py): values, ranks and the best tokens of each place.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "kernels/backend.h"
#include "tests/golden/golden_file.h"
#include "worker/engine/engine.h"
#include "worker/model/model.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire::golden {
namespace {

// Logits are within 1e-5 of the largest, which is at most about 15 here; values keep six decimals.
constexpr double kTolerance = 3e-4;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kMaxRows = 4;
constexpr int32_t kContext = 256;
constexpr int64_t kPages = 400;

std::string Folder() { return std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models"; }

// One place of a prompt as the reference has it; rank 0 where two tokens are too close to tell.
struct Place {
  double logprob = 0.0;
  uint32_t rank = 0;
  std::vector<TokenId> best;
};

std::map<std::string, std::vector<Place>> ReadPlaces() {
  const auto value = json::Parse(ReadFile(Folder() + "/prompt_logprobs.json"));
  EXPECT_TRUE(value.ok());
  std::map<std::string, std::vector<Place>> all;
  for (const auto& member : value->as_object()) {
    std::vector<Place>& places = all[std::string(member.key())];
    for (const json::Value& entry : member.value().as_array()) {
      const json::Array& fields = entry.as_array();
      Place& place = places.emplace_back();
      place.logprob = fields[0].to_number<double>();
      if (fields[1].is_null()) continue;
      place.rank = static_cast<uint32_t>(fields[1].to_number<int64_t>());
      for (const json::Value& id : fields[2].as_array()) {
        place.best.push_back(static_cast<TokenId>(id.to_number<int64_t>()));
      }
    }
  }
  return all;
}

// The prompt's logprobs from an engine that serves it alone, in steps of at most `step_tokens`.
PromptLogprobs Score(const model::Model& model, const std::vector<TokenId>& prompt,
                     const std::string& isa, int32_t step_tokens) {
  std::string error;
  const auto backend = kernels::MakeCpuBackend({.threads = 2, .isa = isa}, error);
  EXPECT_NE(backend, nullptr) << error;
  const kernels::StepProgram& program = model.program;
  kernels::ProgramOptions load;
  load.kv = kernels::DealLayers(
      program.layer_windows,
      {.block_size = kBlockSize, .kv_heads = program.kv_heads, .head_dim = program.head_dim});
  load.page_count = kPages;
  load.max_tokens = MaxStepTokens(kMaxRows, step_tokens, kBlockSize);
  load.max_rows = kMaxRows;
  load.max_samples = kMaxRows;  // fewer than a step scores: they go in slices
  const auto loaded = backend->Load(program, load);
  EngineOptions options;
  options.max_model_len = kContext;
  options.max_num_seqs = kMaxRows;
  options.max_num_batched_tokens = step_tokens;
  options.block_size = kBlockSize;
  options.page_count = kPages;
  options.cache_kinds = CacheKindsOf(load.kv);
  options.vocab_size = program.vocab_size;
  CpuRunner runner(*loaded, {.limits = {.max_rows = kMaxRows,
                                        .max_tokens = load.max_tokens,
                                        .max_model_len = kContext,
                                        .block_size = kBlockSize,
                                        .groups = static_cast<int32_t>(load.kv.groups.size()),
                                        .page_count = kPages,
                                        .vocab_size = options.vocab_size},
                             .now_us = [] { return int64_t{0}; }});
  StepProgress progress;
  Engine engine(options, runner, progress);
  Submit submit;
  submit.key = {RequestNumber(1), Attempt(1)};
  submit.choices.resize(1);
  submit.prompt_ids = prompt;
  submit.sampling.max_tokens = 0;
  submit.sampling.prompt_logprobs = 1 + 3;
  engine.Apply(SubmitCommand{RouterInstance(1), submit, kNeverMicros}, 1);
  PromptLogprobs all;
  for (int round = 0; round < 1000; ++round) {
    const EngineOutput output = engine.RunOnce(1);
    for (const RouterOutput& router : output.routers) {
      EXPECT_TRUE(router.refused.empty() && router.outputs.empty());
      for (const PromptLogprobs& part : router.prompt_logprobs) {
        EXPECT_EQ(part.first_position, all.logprobs.size() + 1);
        all.logprobs.insert(all.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
        all.ranks.insert(all.ranks.end(), part.ranks.begin(), part.ranks.end());
        all.top.insert(all.top.end(), part.top.begin(), part.top.end());
      }
    }
    if (output.next_wakeup_us > 1) break;
  }
  return all;
}

TEST(PromptLogprobsGolden, EveryFamilyAsTheReferenceHasIt) {
  const std::map<std::string, std::vector<Place>> all = ReadPlaces();
  EXPECT_GE(all.size(), 16u);
  for (const auto& [name, places] : all) {
    SCOPED_TRACE(name);
    const Golden golden = ReadGolden(Folder() + "/" + name + "/golden.json");
    const auto model = model::LoadModel(Folder() + "/" + name, {.with_text = false});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(golden.tokens.size(), places.size() + 1);
    const PromptLogprobs got = Score(**model, golden.tokens, "auto", 512);
    ASSERT_EQ(got.logprobs.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_NEAR(got.logprobs[i], places[i].logprob, kTolerance) << "position " << i + 1;
      if (places[i].rank == 0) continue;
      EXPECT_EQ(got.ranks[i], places[i].rank) << "position " << i + 1;
      EXPECT_EQ(got.top[i].ids, places[i].best) << "position " << i + 1;
    }
    // The same bits in other chunks and on another instruction set.
    const PromptLogprobs again = Score(**model, golden.tokens, "avx2", 7);
    ASSERT_EQ(again.logprobs.size(), got.logprobs.size());
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(again.logprobs[i]),
                std::bit_cast<uint32_t>(got.logprobs[i]));
      ASSERT_EQ(again.top[i].logprobs, got.top[i].logprobs);
    }
  }
}

}  // namespace
}  // namespace quire::golden
