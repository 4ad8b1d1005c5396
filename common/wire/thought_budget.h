// How many tokens of thoughts each choice of a request may write before they are ended: plain data,
// as it travels from router to worker. worker/constrain/thought.h holds choices to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace quire {

inline constexpr size_t kMaxThoughtMarks = 16;    // in each list
inline constexpr size_t kMaxThoughtMarkIds = 16;  // of one mark
inline constexpr size_t kMaxThoughtEndIds = 64;

struct ThoughtBudget {
  using Mark = std::vector<TokenId>;

  uint32_t tokens = 0;
  bool opened = false;   // the prompt ends inside a thought
  bool repeats = false;  // a thought may come again; what is left of the budget is for all
  std::vector<Mark> opens, closes;
  std::vector<TokenId> end;  // what is written when the tokens are used up; not empty

  bool operator==(const ThoughtBudget&) const = default;
};

}  // namespace quire
