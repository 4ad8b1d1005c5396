// What workers without a model answer: texts chosen by what a prompt says, as a model would write
// them, marks of tool calls and thoughts included.
//
// A file holds a JSON array of rules, {"when": "text", "answer": "text"}: a rule fits if
// its text is in the prompt. The one counts whose text ends last, since a prompt with several turns
// holds the texts of earlier ones; if several do, the first. A rule without "when" is for all other
// prompts. Immutable once read; any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"

namespace quire::bench {

class Script {
 public:
  // INVALID_ARGUMENT names the rule that is wrong.
  static absl::StatusOr<std::unique_ptr<Script>> Read(std::string_view rules,
                                                      const text::TextBundle& bundle);

  // The tokens of the answer, with the one that ends it; nothing: no rule fits.
  std::optional<std::vector<TokenId>> AnswerTo(std::span<const TokenId> prompt) const;

 private:
  struct Rule {
    std::string when;
    std::vector<TokenId> answer;
  };

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<Rule> rules_;
};

}  // namespace quire::bench
