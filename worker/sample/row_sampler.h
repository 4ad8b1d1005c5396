// Turns a request's sampling parameters and its tokens so far into the input of the sampling
// kernel.
//
// Owner: the runner's row. Invariants:
// 1. The row depends only on parameters, prompt and outputs: never on the batch, the chunks or the
//    past of the process, so that a resumed or preempted request continues as if nothing had
//    happened.
// 2. Parameters that Row() does not fill in are refused at Submit, before they get here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/wire/sampling.h"
#include "kernels/sampling/sample_row.h"

namespace quire {

class RowSampler {
 public:
  // `end_ids`: not sampled before min_tokens. `longest`: the most tokens that the row can have, so
  // that nothing is allocated while it grows. The rest of `params` must have been validated.
  void Reset(const SamplingParams& params, uint32_t choice, std::vector<TokenId> end_ids,
             int32_t vocab_size, int64_t longest = 0);

  // A further token of the row, in order.
  void Observe(TokenId token, bool is_output);

  // How to sample the next output. `outputs`: those so far; `unknown`: how many more there are that
  // are still being sampled. Valid until the next call on this object. Requires: nothing unknown
  // where NeedsOutputs().
  kernels::SampleRow Row(std::span<const TokenId> outputs, int32_t unknown = 0);
  // The same after `drafted` ≥ 1 drafts, the last of `outputs`, which may be rejected. Valid until
  // the next call for as many drafts. Requires: Row() was called for the outputs before them.
  kernels::SampleRow DraftRow(std::span<const TokenId> outputs, size_t drafted);
  // The ids that a row may sample, behind so many drafts, of those in `mask`, which a grammar
  // allows: without those that allowed_token_ids leaves out. Valid until the next call for as many
  // drafts, and while the mask is. Requires: DraftRow() was called for them.
  std::span<const uint32_t> Restrict(std::span<const uint32_t> mask, size_t drafted = 0);
  const SamplingParams& params() const { return params_; }
  uint32_t choice() const { return choice_; }
  // Whether the next output depends on the values of earlier outputs, and not only on their number.
  bool NeedsOutputs() const;
  // How to score a token of the prompt.
  kernels::SampleRow ScoreRow(TokenId token) const;

 private:
  bool Penalised() const;
  void MergePending();
  void FillBanned(std::span<const TokenId> outputs, int32_t unknown,
                  std::vector<int32_t>& banned) const;
  kernels::SampleRow MakeRow(uint64_t output_index) const;

  // What is in force after so many drafts.
  struct AfterDrafts {
    std::vector<int32_t> banned;
    std::vector<kernels::TokenCount> counts;
    std::vector<uint32_t> restricted;
  };

  SamplingParams params_;
  uint32_t choice_ = 0;
  std::vector<TokenId> end_ids_;
  std::vector<uint32_t> allowed_mask_;
  std::vector<uint32_t> restricted_;
  std::vector<kernels::TokenBias> bias_;
  std::vector<kernels::TokenCount> counts_;   // sorted by id
  std::vector<kernels::TokenCount> pending_;  // observed, not yet merged into counts_
  std::vector<kernels::TokenCount> merged_;
  std::vector<int32_t> banned_;
  std::vector<AfterDrafts> after_drafts_;  // of 1, 2, … drafts; kept for reuse
};

}  // namespace quire
