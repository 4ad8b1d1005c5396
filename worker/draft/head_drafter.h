// What drafters have in common that read the target's hidden states: counts, time, and where the
// rows are that they know.
//
// Owner: the engine's creator; called from the engine's thread, on which they compute. Bounded by
// the rows of the target's runner: what is held belongs to a row of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/counted.h"
#include "common/metrics/counted_series.h"
#include "kernels/backend.h"
#include "kernels/sampling/sample_row.h"
#include "worker/draft/drafter.h"
#include "worker/runner/step_observer.h"

namespace quire {

// The most tokens, and rows, that a head computes at once: its memory follows from them.
inline constexpr int32_t kMaxHeadTokens = 256;
inline constexpr int32_t kMaxHeadRows = 32;

struct HeadDrafterOptions {
  int32_t max_rows = 0;    // of the target's runner
  int32_t max_tokens = 0;  // that a head computes at once: kMaxHeadTokens, or fewer
  int32_t block_size = 0;
  int32_t max_positions = 0;
  int32_t hidden_size = 0;    // of the target, and of what a layer shows
  int32_t feature_width = 0;  // of what the target shows for a token
  int32_t target_vocab_size = 0;
  int32_t max_drafts = 0;
  std::vector<TokenId> token_map;   // the target's id of each id that a head samples; may be empty
  std::function<int64_t()> now_us;  // the engine's clock
  Metrics* metrics = nullptr;       // outlives the drafter; may be absent
};

// Since the start. A draft model counts the same under the same names.
struct HeadDrafterTotals {
  uint64_t steps = 0;
  uint64_t tokens = 0;
};
inline constexpr Counted<HeadDrafterTotals> kHeadDrafterCounts[] = {
    {&HeadDrafterTotals::steps, "quire_worker_draft_model_steps_total",
     "steps of the draft model or head"},
    {&HeadDrafterTotals::tokens, "quire_worker_draft_model_tokens_total",
     "tokens that the draft model or head computed"}};

class HeadDrafter : public Drafter, public StepObserver {
 public:
  bool ReadsSteps() const final { return true; }
  bool GuessesForFree() const final { return false; }
  double TokenMicros() const final { return token_us_; }
  void Forget(uint64_t sequence) final;
  void Propose(std::span<const DraftRow> rows) final;

  const HeadDrafterTotals& totals() const { return totals_; }

 protected:
  explicit HeadDrafter(HeadDrafterOptions options);

  // A row of a call that drafts, and the slot that it has.
  struct Active {
    const DraftRow* row = nullptr;
    int32_t slot = 0;
  };
  // Drafts for at most kMaxHeadRows rows.
  virtual void Draft(std::span<const Active> rows) = 0;

  // The slot holds what is known of the sequence's first `length` tokens from now on.
  void Hold(int32_t slot, uint64_t sequence, int64_t length);
  int64_t LengthOf(int32_t slot) const { return slots_[static_cast<size_t>(slot)].length; }
  // How the head samples a row's output of that index: with the target's noise and temperature
  // where it has the target's ids (Daliri et al., 2024), and else its likeliest token.
  kernels::SampleRow SampleOf(const SamplingParams& sampling, uint32_t choice,
                              int64_t output_index) const;
  // The target's id, or −1: it is beyond its vocabulary or none at all.
  TokenId TargetId(int32_t id) const;
  void Count(size_t tokens) {
    ++totals_.steps;
    totals_.tokens += tokens;
  }
  const HeadDrafterOptions& options() const { return options_; }

 private:
  struct Slot {
    uint64_t sequence = 0;
    int64_t length = 0;  // 0: nothing is held
  };

  const HeadDrafterOptions options_;
  std::vector<Slot> slots_;
  std::unordered_map<uint64_t, int32_t> slot_of_;  // of those that hold something
  std::vector<Active> active_;
  HeadDrafterTotals totals_;
  std::optional<CountedSeries<HeadDrafterTotals>> series_;
  double token_us_ = 0;
};

}  // namespace quire
