// Drafts what followed the last tokens of a row where they stood before: in its prompt, in its
// outputs, in the text that its client predicts. Known as prompt look-up (Saxena, "Prompt Lookup
// Decoding", 2023).
//
// Owner: the engine's creator; called from the engine's thread. Each row keeps its text once more,
// with a chain through the places of equal endings, as LZ77 compressors have it: about 16 bytes a
// token until the sequence ends. All texts together have at most NgramOptions::most_tokens: those
// that no row of a call needs give way, the oldest first, and begin again when they are drafted
// for; a row for which there is no room has no drafts. A proposal looks at kMaxCandidates places at
// most. It is no longer than the agreement that it rests on, except where that is the longest
// looked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "worker/draft/drafter.h"

namespace quire {

inline constexpr int kMaxLookupTokens = 32;  // the longest ending that is looked up
inline constexpr size_t kMaxLookupTextTokens = size_t{4} << 20;  // of all rows: about 64 MiB

struct NgramOptions {
  int32_t min_tokens = 5;  // an ending shorter than this is not looked up
  int32_t max_tokens = 5;  // of several places, the one where the most tokens agree, up to this
  size_t most_tokens = kMaxLookupTextTokens;  // of all texts
};

class NgramDrafter final : public Drafter {
 public:
  // Requires: 1 ≤ min_tokens ≤ max_tokens ≤ kMaxLookupTokens.
  explicit NgramDrafter(const NgramOptions& options);

  void Propose(std::span<const DraftRow> rows) override;
  void Forget(uint64_t sequence) override;
  uint64_t Evictions() const override { return evictions_; }
  size_t held_tokens() const { return held_tokens_; }
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
    uint64_t round = 0;             // the last call that named its row
  };

  bool MakeRoom(size_t tokens);
  void Read(const DraftRow& row, Text& text);
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
  size_t held_tokens_ = 0;                     // of all texts
  uint64_t round_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace quire
