// How the model of an answer writes tool calls and thoughts, in terms of its tokens.
//
// A value, made once for a model and shared by its requests; any thread may read it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

// What an operator says of a model's dialect and thoughts, by its served name; "" is for the
// others. nullptr: it has none.
struct AnswerRules {
  std::map<std::string, const dialect::Dialect*> dialects;
  std::map<std::string, const dialect::Thoughts*> thoughts;

  // Values are NAME for all models or MODEL=NAME, as vLLM spells NAME, or none. INVALID_ARGUMENT
  // begins with the flag, --tool-call-parser or --reasoning-parser.
  static absl::StatusOr<AnswerRules> Read(const std::vector<std::string>& dialects,
                                          const std::vector<std::string>& thoughts);
  // The model's own dialect and thoughts, or those that the rules say in place of them.
  dialect::Detected Of(const std::string& model, dialect::Detected spoken) const;
};

AnswerFormat MakeAnswerFormat(const ModelText& text, const dialect::Detected& spoken);

// Whether the answer to this chat may have calls.
bool MayCall(const AnswerFormat& format, const ChatPrompt& chat, const ToolUse& use);

}  // namespace quire
