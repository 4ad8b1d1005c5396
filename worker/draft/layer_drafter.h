// Drafts with one more layer behind the target's: EAGLE-3 (Li et al., arXiv 2503.01840) and the
// layers of DeepSeek-V3 that predict further tokens (arXiv 2412.19437).
//
// At position t the layer reads what the target shows there and the embedding of token t + 1, and
// predicts token t + 2. It has keys and values of its own for each position, in a pool whose pages
// have the numbers of the target's. So the target's block tables, prefix cache and copies serve
// both.
//
// Owner and threads as HeadDrafter. Invariants:
// 1. When a step has been observed, the layer has computed all positions whose next token is known.
// 2. Drafting writes pages of its own, behind the target's: a row's last block is copied there
//    first. So no draft changes what a later proposal reads.
// 3. The keys of a cached block's last position belong to the next token of the sequence that
//    computed it; another that shares the block reads them as they are. This changes proposals
//    alone, and at one position for each border at which two sequences part.
#pragma once

#include <vector>

#include "worker/draft/head_drafter.h"

namespace quire {

// Pages that the drafts of one row may touch: its last block, and those that they reach.
constexpr int32_t DraftPages(int32_t max_drafts, int32_t block_size) {
  return max_drafts / block_size + 2;
}

struct LayerPrograms {
  kernels::LoadedProgram* embedder = nullptr;  // of tokens
  kernels::LoadedProgram* project = nullptr;   // from features to what the layer reads
  // Reads that and an embedding. It has page_count pages and DraftPages for kMaxHeadRows rows.
  kernels::LoadedProgram* layer = nullptr;
  int32_t group = 0;       // of the target's tables: the one that the layer's pages follow
  int32_t page_count = 0;  // of the target
};

class LayerDrafter final : public HeadDrafter {
 public:
  // The programs outlive the drafter.
  LayerDrafter(HeadDrafterOptions options, const LayerPrograms& programs);

  void Observe(const ObservedStep& step) override;

 private:
  // Of a row that sampled last.
  struct Held {
    TokenId first_draft = -1;    // −1: none
    std::vector<int32_t> table;  // of the group
  };
  // One step of the layer, as it is filled and run.
  struct Step {
    std::vector<int32_t> tokens;
    std::vector<int32_t> positions;
    std::vector<kernels::BatchRow> rows;
    std::vector<std::span<const int32_t>> tables;  // of the rows
    std::vector<kernels::PageCopy> copies;
    std::vector<int32_t> sampled;
    std::vector<kernels::SampleRow> sample_rows;
    std::vector<kernels::SampleOutput> outputs;
    std::vector<int32_t> slots;   // of the samples; places, of a call's
    std::vector<float> features;  // [tokens][feature width] what the target shows
    std::vector<float> hidden;    // [tokens][hidden] what the layer reads
    std::vector<float> inputs;    // [tokens][hidden, and the embedding]

    void Clear();
  };

  void Draft(std::span<const Active> rows) override;

  // Adds positions [from, from + count) of an observed row to the step.
  void AddPositions(const ObservedStep& step, const ObservedRow& row, int32_t from, int32_t count);
  // Adds one position of a row; its state follows in `hidden`.
  void AddRow(std::span<const int32_t> table, TokenId token, int64_t position);
  // Runs the step over `features`, and keeps the results of rows that sampled.
  void RunObserved();
  // Runs the step over `hidden`.
  void Run();
  // The row's first draft, and pages of its own from the block of its last token on. `place`: among
  // the rows of the call.
  void Begin(const Active& active, int32_t place);
  void AddDraft(const Active& active, int32_t place, int32_t drafted);
  float* StateOf(int32_t slot) {
    return states_.data() + static_cast<size_t>(slot) * static_cast<size_t>(width_);
  }
  float* DraftStateOf(int32_t place) {
    return draft_states_.data() + static_cast<size_t>(place) * static_cast<size_t>(width_);
  }

  const LayerPrograms programs_;
  const int32_t width_;        // of a state
  std::vector<Held> held_;     // by slot
  std::vector<float> states_;  // [slots][hidden] what the layer has shown at the last position
  // Of the rows of a call, by place.
  std::vector<std::vector<int32_t>> tables_;
  std::vector<float> draft_states_;  // [places][hidden]
  Step step_;
};

}  // namespace quire
