// Drafts what followed the last tokens of a row where they stood before: in its prompt, in its
// outputs, in the text that its client predicts. Known as prompt look-up (Saxena, "Prompt Lookup
// Decoding", 2023).
//
// Owner: the engine's creator; called from the engine's thread. Each row keeps its text once more,
// with a chain through the places of equal endings, as LZ77 compressors have it: about 16 bytes a
// token until the sequence ends. A proposal looks at kMaxCandidates places at most. It is no longer
// than the agreement that it rests on, except where that is the longest looked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/draft/drafter.h"

namespace quire {

inline constexpr int kMaxLookupTokens = 32;  // the longest ending that is looked up

struct NgramOptions {
  int32_t min_tokens = 5;  // an ending shorter than this is not looked up
  int32_t max_tokens = 5;  // of several places, the one where the most tokens agree, up to this
};

class NgramDrafter final : public Drafter {
 public:
  // Requires: 1 ≤ min_tokens ≤ max_tokens ≤ kMaxLookupTokens.
  explicit NgramDrafter(const NgramOptions& options);

  void Propose(std::span<const DraftRow> rows) override;
  void Forget(uint64_t sequence) override { texts_.erase(sequence); }
  bool UsesPredictions() const override { return true; }

 private:
  static constexpr int kMaxCandidates = 16;
  static constexpr TokenId kGap = -1;  // between the prediction and the prompt

  struct Text {
    std::vector<TokenId> tokens;    // prediction, gap, prompt, outputs
    std::vector<int32_t> previous;  // by place: the last one before it with its ending; −1: none
    std::vector<int32_t> heads;     // by hash of an ending: its last place; −1: none
    size_t row_begin = 0;           // where the prompt begins
    size_t predicted = 0;           // leading outputs that are the prediction's
  };

  uint32_t Hash(const Text& text, size_t place) const;
  void Append(Text& text, std::span<const TokenId> tokens) const;
  void Link(Text& text, size_t place) const;
  struct Match {
    int32_t place = -1;  // −1: none
    int32_t tokens = 0;  // that agree
  };
  Match FindPlace(const Text& text) const;
  void Draft(const DraftRow& row, Text& text) const;

  const NgramOptions options_;
  absl::flat_hash_map<uint64_t, Text> texts_;  // by sequence
};

}  // namespace quire
