#include "router/core/answer_format.h"

#include <algorithm>
#include <string_view>

#include "common/status.h"

namespace quire {

namespace {

template <class T>
const T* const* RuleOf(const std::map<std::string, const T*>& rules, const std::string& model) {
  auto rule = rules.find(model);
  if (rule == rules.end()) rule = rules.find("");
  return rule == rules.end() ? nullptr : &rule->second;
}

// "NAME" or "MODEL=NAME" into `rules`; `find` knows the names, and `known` lists them.
template <class T, class Find>
absl::Status ReadRules(std::string_view flag, const std::vector<std::string>& values,
                       const Find& find, const std::string& known,
                       std::map<std::string, const T*>& rules) {
  for (const std::string& value : values) {
    const size_t equals = value.rfind('=');
    const bool named = equals != std::string::npos;
    const std::string name = named ? value.substr(equals + 1) : value;
    const T* found = find(name);
    if (found == nullptr && name != "none") {
      return InvalidArgument(std::string(flag) + ": \"" + name + "\" is not known; known are " +
                             known + ", none");
    }
    if (name == "none") found = nullptr;
    if (!rules.emplace(named ? value.substr(0, equals) : "", found).second) {
      return InvalidArgument(std::string(flag) + ": says two things of " +
                             (named ? "model " + value.substr(0, equals) : "all models") +
                             "; give one NAME, or MODEL=NAME for each model");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AnswerRules> AnswerRules::Read(const std::vector<std::string>& dialects,
                                              const std::vector<std::string>& thoughts) {
  AnswerRules rules;
  QUIRE_RETURN_IF_ERROR(ReadRules("--tool-call-parser", dialects, dialect::FindDialect,
                                  dialect::DialectNames(), rules.dialects));
  QUIRE_RETURN_IF_ERROR(ReadRules("--reasoning-parser", thoughts, dialect::FindThoughts,
                                  dialect::ThoughtsNames(), rules.thoughts));
  return rules;
}

dialect::Detected AnswerRules::Of(const std::string& model, dialect::Detected spoken) const {
  if (const auto* rule = RuleOf(dialects, model)) {
    spoken.dialect = *rule;
    const bool silent = spoken.thoughts == nullptr && spoken.dialect != nullptr;
    if (silent) spoken.thoughts = dialect::FindThoughts(spoken.dialect->thoughts);
  }
  if (const auto* rule = RuleOf(thoughts, model)) spoken.thoughts = *rule;
  const bool none = spoken.thoughts != nullptr && spoken.thoughts->name == "none";
  if (none) spoken.thoughts = nullptr;
  return spoken;
}

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
