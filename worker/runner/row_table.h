// The state of rows that a runner keeps between packets, and how a plan becomes a batch of kernels.
//
// Owner: a runner. Pure. Batches may be built before the samples of earlier ones are known.
// Invariants:
// 1. A row's tokens are those received and those sampled, in order. Its computed length never
//    exceeds them, including samples that have not been taken yet: their tokens are LastSampleOf
//    the row.
// 2. A plan that contradicts the rows' state is a bug of this worker and ends the process.
// 3. Samples are taken in the order in which batches were built; the samples of a row that has been
//    retired since are reported and not kept.
// 4. A constrained row is sampled only when all its outputs are known, by the masks that come while
//    the batch runs: one for its last token and one for each of its drafts.
// 5. Drafts become tokens of their row when TakeSamples accepts them, and not before; what a
//    rejected one has left in the row's pages is overwritten before it is read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/step_batch.h"
#include "worker/core/step_plan.h"
#include "worker/runner/step_masks.h"
#include "worker/runner/step_observer.h"
#include "worker/runner/step_packet.h"
#include "worker/sample/row_sampler.h"

namespace quire {

class RowTable final : public kernels::LateMasks {
 public:
  // `masks` outlives the table; null where no row is constrained.
  explicit RowTable(const StepLimits& limits, StepMasks* masks = nullptr);

  // Whether the plan samples a row by outputs that have not been taken yet. BuildBatch requires
  // that it does not.
  bool NeedsSamples(const StepPlan& plan) const;

  // Applies the plan up to its rows' tokens and lays out the batch, which is valid until the next
  // call on this object.
  const kernels::StepBatch& BuildBatch(const StepPlan& plan);

  // Of the batch built last.
  void Fill() override;

  // After the batch has run: takes its samples into the rows and reports them. `outputs`: one for
  // each of the batch's sample_rows, in their order.
  void TakeSamples(const StepPlan& plan, std::span<const kernels::SampleOutput> outputs,
                   StepResult& result);

  // What the batch that was built last has computed, once its samples have been taken. Overwrites
  // `rows`; valid until the next call on this object.
  void Describe(const StepPlan& plan, std::vector<ObservedRow>& rows) const;

 private:
  struct Row {
    bool alive = false;
    bool constrained = false;
    int32_t adapter = -1;
    uint64_t sequence = 0;
    int64_t prompt_length = 0;
    int64_t computed = 0;
    int32_t unknown = 0;   // further tokens: samples that have not been taken
    bool drafted = false;  // its drafts are in a batch whose samples have not been taken
    std::vector<TokenId> tokens;
    std::vector<std::vector<int32_t>> tables;  // by group, page by logical block; −1: gone
    RowSampler sampler;
  };

  void Apply(const StepPlan& plan);
  void AddTokens(Row& row, std::span<const TokenId> tokens);
  void AddToBatch(const StepRow& planned, std::span<const TokenId> drafts, int32_t index);
  void AddSample(const StepRow& planned, Row& row);
  void AddDraftSamples(const StepRow& planned, std::span<const TokenId> drafts, Row& row);
  void AddScores(const StepRow& planned, int32_t index);
  void TakeSample(const StepRow& planned, std::span<const TokenId> drafts,
                  std::span<const SampledToken> samples);
  void TakeScores(const StepPlan& plan, std::span<const kernels::SampleOutput> outputs,
                  StepResult& result);

  // A sample row whose mask has not come yet.
  struct LateRow {
    size_t sample = 0;  // index into sample_rows_
    int32_t row = 0;
    size_t drafts = 0;  // of the row, that come before it
  };

  StepLimits limits_;
  StepMasks* const masks_;
  std::vector<Row> rows_;
  std::vector<LateRow> late_;
  std::vector<uint32_t> nothing_;  // the mask of a row whose mask does not come

  // The batch and the arrays that it points to.
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<kernels::BatchRow> batch_rows_;
  std::vector<std::span<const int32_t>> table_spans_;  // [batch rows, groups]
  std::vector<kernels::PageCopy> copies_;
  std::vector<kernels::TableChange> table_changes_;
  std::vector<int32_t> sampled_tokens_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<int32_t> sample_slots_;
  std::vector<kernels::SampleOutput> sample_outputs_;
  kernels::StepBatch batch_;
  // Sequences of the rows that batches sample, in order, of the samples not taken yet.
  std::vector<uint64_t> sampling_;
  size_t sampling_taken_ = 0;  // of these
};

}  // namespace quire
