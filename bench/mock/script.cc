#include "bench/mock/script.h"

#include <algorithm>
#include <utility>

#include "common/json/json.h"
#include "common/status.h"

namespace quire::bench {

absl::StatusOr<std::unique_ptr<Script>> Script::Read(std::string_view rules,
                                                     const text::TextBundle& bundle) {
  std::unique_ptr<Script> script(new Script());
  QUIRE_ASSIGN_OR_RETURN(script->tokenizer_, text::Tokenizer::FromJson(bundle.tokenizer_json));
  QUIRE_ASSIGN_OR_RETURN(const json::Value root, json::Parse(rules));
  QUIRE_ASSIGN_OR_RETURN(const json::Array* list, json::AsArray(root, "script"));
  const std::vector<TokenId>& ends = bundle.eos_token_ids;
  for (const json::Value& value : *list) {
    const std::string name = "rule " + std::to_string(script->rules_.size());
    QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, name));
    Rule& rule = script->rules_.emplace_back();
    if (const json::Value* when = json::Find(*object, "when")) {
      QUIRE_ASSIGN_OR_RETURN(rule.when, json::AsString(*when, name + ".when"));
    }
    const json::Value* answer = json::Find(*object, "answer");
    if (answer == nullptr) return InvalidArgument(name + " needs an answer");
    QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(*answer, name + ".answer"));
    QUIRE_ASSIGN_OR_RETURN(rule.answer, script->tokenizer_->Encode(text, false));
    const bool ended = !rule.answer.empty() &&
                       std::find(ends.begin(), ends.end(), rule.answer.back()) != ends.end();
    if (!ended && !ends.empty()) rule.answer.push_back(ends.front());
  }
  return script;
}

std::optional<std::vector<TokenId>> Script::AnswerTo(std::span<const TokenId> prompt) const {
  const std::string text = tokenizer_->Decode(prompt, false);
  const Rule* best = nullptr;
  size_t best_end = 0;
  for (const Rule& rule : rules_) {
    const size_t at = text.rfind(rule.when);
    if (at == std::string::npos) continue;
    const size_t end = rule.when.empty() ? 0 : at + rule.when.size();
    if (best != nullptr && end <= best_end) continue;
    best = &rule;
    best_end = end;
  }
  if (best == nullptr) return std::nullopt;
  return best->answer;
}

}  // namespace quire::bench
