// Drafts with a second, smaller model that has the target's vocabulary (Leviathan et al., "Fast
// Inference from Transformers via Speculative Decoding", 2023). It samples each position with the
// noise, the temperature and the penalties of that position, as the target will (Daliri et al.,
// 2024): so the two agree at any temperature wherever their distributions do.
//
// Owner: the engine's creator; called from the engine's thread, on which the draft model computes.
// Its keys and values are in pages of their own, with a prefix cache of their own. A row exists in
// its runner only during a call of Propose.
//
// Invariants:
// 1. The blocks of a sequence hold the keys and values of its first `computed` tokens. Behind its
//    known tokens these are its last drafts, and count only where they became its tokens.
// 2. Blocks are published only from tokens that are the sequence's for good, and are not written
//    again.
// 3. A row that has many tokens to catch up with takes max_catch_up_us of a call at most, about,
//    and has no drafts before it is done. When pages run out, the sequences that were proposed for
//    the longest time ago give theirs back and begin again.
// 4. While the runner's device is lost nothing is drafted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/counted.h"
#include "common/metrics/counted_series.h"
#include "worker/draft/drafter.h"
#include "worker/kv/kv_cache.h"
#include "worker/runner/runner.h"
#include "worker/runner/step_packet.h"
#include "worker/scheduler/step_time.h"

namespace quire {

struct ModelDrafterOptions {
  StepLimits limits;                  // of the runner; max_rows: at least the rows of a call
  std::vector<CacheKindShape> kinds;  // of its pages; none holds states
  int32_t target_vocab_size = 0;      // ids from here on are never drafted
  int64_t max_catch_up_us = 50'000;
  Metrics* metrics = nullptr;  // outlives the drafter; may be absent
  // Called with each of its pages that is freed, so that tests can poison it. May be empty.
  std::function<void(int32_t page)> on_page_freed = nullptr;
};

// Since the start.
struct ModelDrafterTotals {
  uint64_t steps = 0;
  uint64_t tokens = 0;         // computed
  uint64_t cached_tokens = 0;  // found in its prefix cache
  uint64_t evictions = 0;      // sequences that gave their pages back
  uint64_t unfit = 0;          // sequences with tokens that the draft model does not have
};
inline constexpr Counted<ModelDrafterTotals> kModelDrafterCounts[] = {
    {&ModelDrafterTotals::steps, "quire_worker_draft_model_steps_total",
     "steps of the draft model or head"},
    {&ModelDrafterTotals::tokens, "quire_worker_draft_model_tokens_total",
     "tokens that the draft model or head computed"},
    {&ModelDrafterTotals::cached_tokens, "quire_worker_draft_model_cached_tokens_total",
     "tokens that it found in its prefix cache"},
    {&ModelDrafterTotals::unfit, "quire_worker_draft_model_unfit_total",
     "choices that it cannot draft for: their tokens or their length are beyond it"}};

class ModelDrafter final : public Drafter {
 public:
  // `runner` computes the draft model, is used by nothing else, and outlives the drafter.
  ModelDrafter(ModelDrafterOptions options, Runner& runner);

  void Propose(std::span<const DraftRow> rows) override;
  void Forget(uint64_t sequence) override;
  uint64_t Evictions() const override { return totals_.evictions; }
  double TokenMicros() const override;
  double CatchUpMicros(uint64_t sequence, int64_t length) const override;
  bool GuessesForFree() const override { return false; }

  const ModelDrafterTotals& totals() const { return totals_; }
  // Aborts when an invariant of its pages is broken: for tests.
  void CheckInvariants() const;

 private:
  struct Held {
    SequenceBlocks blocks;
    PrefixChain chain;
    int64_t computed = 0;         // leading tokens whose keys and values are in the blocks
    int64_t known = 0;            // tokens of the sequence at the last proposal
    std::vector<TokenId> drafts;  // of the last proposal, behind them
    int64_t checked = 0;          // leading tokens that the draft model has
    uint64_t round = 0;           // the last one that proposed for it
    bool unfit = false;
  };
  // A row of the current call.
  struct Active {
    const DraftRow* row = nullptr;
    Held* held = nullptr;
    int32_t index = 0;
    size_t wanted = 0;         // drafts
    bool catching_up = false;  // it computes a part of its tokens and drafts nothing
  };

  bool Works();
  bool Prepare(const DraftRow& row, Held& held);
  void FindCached(const DraftRow& row, Held& held);
  bool MakeRoom(Held& held, int64_t length);
  void Begin(const DraftRow& row, Held& held, int64_t& tokens_left, double& micros_left);
  void PlanBirth(const Active& active);
  void PlanFirst(Active& active, int64_t count);
  void Run();
  void TakeDrafts();
  void PlanNext();
  void Settle();
  void Drop(Held& held);
  void DropAll();

  const ModelDrafterOptions options_;
  Runner& runner_;
  KvCache kv_;
  StepTimeModel step_time_;
  ModelDrafterTotals totals_;
  std::optional<CountedSeries<ModelDrafterTotals>> series_;
  // Values stay where they are: rows of a call point to them.
  std::unordered_map<uint64_t, Held> held_;  // by sequence
  uint64_t round_ = 0;
  StepWork last_decode_;  // of the last step without prefill

  bool lost_ = false;  // the runner's device

  // Of the current call; reused.
  std::vector<Active> active_;      // all rows of the call
  std::vector<Active*> sampling_;   // those that sample in the next step
  std::vector<int32_t> to_retire_;  // rows of the call before
  StepPlan plan_;
  StepWork work_;
  std::vector<std::byte> packet_;
  StepResult result_;
};

}  // namespace quire
