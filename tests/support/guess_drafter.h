// A drafter for tests over the tag model: it is told the answers, and guesses wrong now and then,
// the same way for the same place. After an answer's end it goes on with something else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/tag_arithmetic.h"
#include "worker/draft/drafter.h"

namespace quire::test {

class GuessDrafter final : public Drafter {
 public:
  // One guess in `wrong_in` is wrong; 0: none is.
  GuessDrafter(uint64_t wrong_in, int32_t vocab_size)
      : wrong_in_(wrong_in), vocab_size_(vocab_size) {}

  // Requests are told by their seeds.
  void Know(uint64_t seed, uint32_t choice, std::vector<TokenId> answer) {
    answers_[{seed, choice}] = std::move(answer);
  }

  void Propose(std::span<const DraftRow> rows) override {
    for (const DraftRow& row : rows) {
      const auto known = answers_.find({row.sampling->seed, row.choice});
      const size_t outputs = row.tokens.size() - static_cast<size_t>(row.prompt_length);
      for (size_t i = 0; i < static_cast<size_t>(row.wanted); ++i) {
        const uint64_t draw = TagMix(row.sampling->seed, outputs + i);
        const bool knows = known != answers_.end() && outputs + i < known->second.size();
        const bool wrong = wrong_in_ > 0 && draw % wrong_in_ == 0;
        row.drafts->push_back(
            knows && !wrong
                ? known->second[outputs + i]
                : static_cast<TokenId>((draw >> 32) % static_cast<uint64_t>(vocab_size_)));
      }
      proposed_ += row.drafts->size();
    }
  }
  void Forget(uint64_t sequence) override { forgotten_ += sequence > 0; }

  uint64_t proposed() const { return proposed_; }
  uint64_t forgotten() const { return forgotten_; }

 private:
  const uint64_t wrong_in_;
  const int32_t vocab_size_;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<TokenId>> answers_;
  uint64_t proposed_ = 0;
  uint64_t forgotten_ = 0;
};

}  // namespace quire::test
