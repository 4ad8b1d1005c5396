#include "router/core/answer_format.h"

#include <algorithm>

namespace quire {

bool AnswerFormat::IsMark(TokenId id) const {
  return std::binary_search(marks.begin(), marks.end(), id);
}

AnswerFormat MakeAnswerFormat(const ModelText& text, const dialect::Detected& spoken) {
  AnswerFormat format;
  format.dialect = spoken.dialect;
  format.thoughts = spoken.thoughts;
  const std::vector<std::string_view> marks =
      dialect::SpecialMarks(spoken.dialect, spoken.thoughts);
  for (const std::string_view mark : marks) {
    if (const std::optional<TokenId> id = text.TokenOf(mark)) format.marks.push_back(*id);
  }
  std::sort(format.marks.begin(), format.marks.end());
  // A tokenizer without any of them writes them as text.
  format.tokens = marks.empty() || !format.marks.empty();
  return format;
}

bool MayCall(const AnswerFormat& format, const ChatPrompt& chat, const ToolUse& use) {
  const bool wanted = !chat.tools_json.empty() && use.choice != ToolChoice::kNone;
  return wanted && format.dialect != nullptr;
}

}  // namespace quire
