// An engine over a loaded program with 256 rows that ask for all sorts of sampling.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/grammar/grammar.h"
#include "kernels/backend.h"
#include "worker/constrain/mask_pool.h"
#include "worker/engine/engine.h"
#include "worker/runner/cpu_runner.h"

namespace quire::test {

struct SteadyOptions {
  int32_t rows = 256;
  int32_t max_model_len = 600;
  int32_t max_prompt = 60;
  int32_t block_size = 16;
  int32_t vocab_size = 64;
  int max_in_flight = 1;
  int64_t page_count = 0;
  std::vector<CacheKindShape> cache_kinds;
  MaskPool* masks = nullptr;                                  // outlives the world
  std::shared_ptr<const grammar::Grammar> grammar = nullptr;  // of all rows, with masks
};

// Of one of three routers: greedy or drawn, with every cut, penalties, biases, bans, logprobs, stop
// ids, min_tokens, windows. It runs to max_model_len.
SubmitCommand SteadyAsk(uint64_t request, const SteadyOptions& options);

// Another program with something done before each step.
class WrappedProgram : public kernels::LoadedProgram {
 public:
  explicit WrappedProgram(kernels::LoadedProgram& inner) : inner_(inner) {}
  void Run(const kernels::StepBatch& batch) override { inner_.Run(batch); }
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) override {
    inner_.RunWithLogits(batch, logits);
  }
  void PoisonPage(int32_t page) override { inner_.PoisonPage(page); }
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return 0; }

 private:
  kernels::LoadedProgram& inner_;
};

class SteadyWorld {
 public:
  SteadyWorld(kernels::LoadedProgram& program, const SteadyOptions& options);

  // All routers watch the cache, and all rows get a request.
  void Submit();
  // One round; the windows of what came out move on.
  void Step();
  // Rounds until every row decodes, and `rounds` more.
  void WarmUp(int rounds);

  SteadyOptions options;
  EngineOptions engine_options;
  Metrics metrics;
  EngineMetrics engine_metrics;
  StepProgress progress;
  std::unique_ptr<CpuRunner> runner;
  std::unique_ptr<Engine> engine;
  EngineOutput output;
  int64_t now_us = 1;
  size_t tokens = 0;   // told so far
  size_t tops = 0;     // of these, with further logprobs
  size_t stored = 0;   // blocks that were told as cached
  size_t removed = 0;  // and as cached no more
};

}  // namespace quire::test
