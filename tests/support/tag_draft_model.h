// A draft model over the tag model, for engines over the tag model, and what it must hold to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/tag_runner.h"
#include "worker/draft/model_drafter.h"
#include "worker/engine/engine.h"
#include "worker/scheduler/scheduler.h"

namespace quire::test {

// The drafter, and the model that it drafts with. `change` changes its options; its tokens are the
// engine's where the salts are.
struct TagDraftModel {
  explicit TagDraftModel(const EngineOptions& engine, int64_t page_count = 512,
                         std::function<void(ModelDrafterOptions&)> change = nullptr,
                         std::function<uint64_t(uint64_t seed)> salt_of_seed = nullptr)
      : TagDraftModel(OptionsFor(engine, page_count, change), engine, std::move(salt_of_seed)) {}

  static ModelDrafterOptions OptionsFor(const EngineOptions& engine, int64_t page_count,
                                        const std::function<void(ModelDrafterOptions&)>& change) {
    ModelDrafterOptions options;
    options.limits.max_rows = engine.max_num_seqs;
    options.limits.max_tokens =
        MaxStepTokens(engine.max_num_seqs, engine.max_num_batched_tokens, engine.block_size);
    options.limits.max_model_len = engine.max_model_len + kMaxDraftTokens;
    options.limits.block_size = engine.block_size;
    options.limits.page_count = page_count;
    options.limits.vocab_size = engine.vocab_size;
    options.kinds = engine.cache_kinds;
    options.target_vocab_size = engine.vocab_size;
    if (change) change(options);
    return options;
  }

  TagDraftModel(ModelDrafterOptions options, EngineOptions engine,
                std::function<uint64_t(uint64_t seed)> salt_of_seed) {
    engine.page_count = options.limits.page_count;
    engine.vocab_size = options.limits.vocab_size;
    engine.max_model_len = options.limits.max_model_len;
    TagRunnerOptions tags = RunnerOptionsFor(engine);
    tags.max_step_tokens = options.limits.max_tokens;
    tags.salt_of_seed = std::move(salt_of_seed);
    runner = std::make_unique<TagRunner>(tags);
    options.on_page_freed = [this](int32_t page) { runner->program().PoisonPage(page); };
    drafter = std::make_unique<ModelDrafter>(std::move(options), *runner);
  }

  std::unique_ptr<TagRunner> runner;
  std::unique_ptr<ModelDrafter> drafter;
};

// A drafter whose proposals are compared with those of one that knows nothing but the row: what a
// row has been through, and what was drafted for it before, must not show.
class CheckedDrafter final : public Drafter {
 public:
  using Maker = std::function<std::unique_ptr<TagDraftModel>()>;

  CheckedDrafter(Drafter& drafter, Maker fresh, std::function<void()> on_difference)
      : drafter_(drafter), fresh_(std::move(fresh)), on_difference_(std::move(on_difference)) {}

  void Propose(std::span<const DraftRow> rows) override {
    drafter_.Propose(rows);
    for (const DraftRow& row : rows) {
      if (row.drafts->empty()) continue;  // it has no pages, or much to catch up with
      // Its own for each: how long a chunk may be depends on those that were measured.
      const std::unique_ptr<TagDraftModel> fresh = fresh_();
      std::vector<TokenId> drafts;
      DraftRow again = row;
      again.cache = nullptr;
      again.drafts = &drafts;
      fresh->drafter->Propose({&again, 1});
      fresh->drafter->Forget(row.sequence);
      ++compared_;
      if (drafts != *row.drafts) on_difference_();
    }
  }
  void Forget(uint64_t sequence) override { drafter_.Forget(sequence); }
  double TokenMicros() const override { return drafter_.TokenMicros(); }
  bool GuessesForFree() const override { return drafter_.GuessesForFree(); }

  uint64_t compared() const { return compared_; }

 private:
  Drafter& drafter_;
  const Maker fresh_;
  const std::function<void()> on_difference_;
  uint64_t compared_ = 0;
};

}  // namespace quire::test
