// Writes Lark as llguidance reads it: texts, special tokens, and text up to a mark.
//
// One owner; the result is a function of the calls.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"

namespace quire::dialect {

// A text as a string of Lark.
std::string LarkString(std::string_view text);

class Lark {
 public:
  using SpecialToken = std::function<std::optional<TokenId>(std::string_view mark)>;

  // `marks`: those that may be special tokens.
  Lark(std::vector<std::string_view> marks, const SpecialToken& special);

  // An item: exactly this text, its special tokens as such. Not empty, or "".
  std::string Text(std::string_view text) const;
  // Whether the mark comes as a special token.
  bool IsSpecial(std::string_view mark) const;
  // An item: any text without one of `marks`; may be empty.
  std::string Free(std::span<const std::string_view> marks);
  // An item: any text, then `mark`, before which none of `marks` is.
  std::string UpTo(std::string_view mark, std::span<const std::string_view> marks);
  // A rule of this body; its name.
  std::string Rule(std::string_view body);
  // The name that the next rule will have, for a body that names itself.
  std::string NextRule() const { return "r" + std::to_string(count_ + 1); }
  // A terminal of this body; its name.
  std::string Terminal(std::string_view body);

  const std::string& rules() const { return rules_; }

 private:
  struct Special {
    std::string_view mark;
    TokenId id;
  };

  std::string Name(char first, std::string_view body);

  std::vector<Special> specials_;
  std::string rules_;
  size_t count_ = 0;
};

}  // namespace quire::dialect
