// Which dialect a model speaks, by its chat template, or by its tokenizer where it has no template;
// and whether a prompt ends inside a thought.
//
// Pure functions; any thread.
#pragma once

#include <span>
#include <string_view>

#include "common/dialect/dialect.h"

namespace quire::dialect {

struct Detected {
  const Dialect* dialect = nullptr;    // null: the template says nothing of calls
  const Thoughts* thoughts = nullptr;  // null: nor of thoughts
};

// `added_tokens`: the texts of the tokenizer's added tokens; they count where `chat_template` is
// empty.
Detected Detect(std::string_view chat_template, std::span<const std::string_view> added_tokens);

// True where the rendered prompt ends with an open thought: the answer begins inside it.
bool EndsInThought(const Thoughts& thoughts, std::string_view prompt);

}  // namespace quire::dialect
