// How the model of an answer writes tool calls and thoughts, in terms of its tokens.
//
// A value, made once for a model and shared by its requests; any thread may read it.
#pragma once

#include <vector>

#include "common/dialect/detect.h"
#include "router/core/model_text.h"

namespace quire {

struct AnswerFormat {
  const dialect::Dialect* dialect = nullptr;    // nullptr: it has no calls
  const dialect::Thoughts* thoughts = nullptr;  // nullptr: it has no thoughts
  bool tokens = false;         // its special marks are tokens of their own, and text is text
  std::vector<TokenId> marks;  // tokens that are marks, ascending

  bool IsMark(TokenId id) const;
};

AnswerFormat MakeAnswerFormat(const ModelText& text, const dialect::Detected& spoken);

// Whether the answer to this chat may have calls.
bool MayCall(const AnswerFormat& format, const ChatPrompt& chat, const ToolUse& use);

}  // namespace quire
