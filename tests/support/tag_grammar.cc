#include "tests/support/tag_grammar.h"

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "common/text/tokenizer.h"

namespace quire::test {
namespace {

// By id; some are whole words, so that a text can be written in several ways.
const std::vector<std::string>& TagTokens() {
  static const auto* tokens = [] {
    auto* made = new std::vector<std::string>;
    for (char letter = 'a'; letter <= 'z'; ++letter) made->emplace_back(1, letter);
    for (char digit = '0'; digit <= '9'; ++digit) made->emplace_back(1, digit);
    for (const char* token : {"{", "}", "\"", ":", ",", "[", "]", "-", ".", "true", "false", "null",
                              "\"a\":", "ab", "abc", "12", "{\"", "\":", ",\""}) {
      made->emplace_back(token);
    }
    for (char letter = 'A'; letter <= 'H'; ++letter) made->emplace_back(1, letter);
    QUIRE_CHECK(made->size() == static_cast<size_t>(kTagEnd));
    return made;
  }();
  return *tokens;
}

std::string Quoted(const std::string& token) {
  std::string quoted = "\"";
  for (const char letter : token) quoted += letter == '"' ? "\\\"" : std::string(1, letter);
  return quoted + "\"";
}

std::string TokenizerJson() {
  std::string vocab;
  for (size_t id = 0; id < TagTokens().size(); ++id) {
    vocab += (id == 0 ? "" : ",") + Quoted(TagTokens()[id]) + ":" + std::to_string(id);
  }
  return R"({"version":"1.0","added_tokens":[{"id":63,"content":"</s>","single_word":false,)"
         R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
         R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",)"
         R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",)"
         R"("vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> TagVocabulary() {
  static const auto* vocabulary = [] {
    const auto tokenizer = text::Tokenizer::FromJson(TokenizerJson());
    QUIRE_CHECK_MSG(tokenizer.ok(), StatusMessage(tokenizer.status()).c_str());
    const TokenId end = kTagEnd;
    auto made = grammar::Vocabulary::Make(**tokenizer, kTagEnd + 1, {&end, 1});
    QUIRE_CHECK_MSG(made.ok(), StatusMessage(made.status()).c_str());
    return new std::shared_ptr<const grammar::Vocabulary>(*std::move(made));
  }();
  return *vocabulary;
}

Constraint ConstraintOf(ConstraintKind kind, std::string_view source) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.source = source;
  return constraint;
}

std::shared_ptr<const grammar::Grammar> TagGrammar(const Constraint& constraint) {
  static std::mutex mutex;
  static std::map<std::pair<ConstraintKind, std::string>, std::shared_ptr<const grammar::Grammar>>
      grammars;
  const std::lock_guard lock(mutex);
  auto& grammar = grammars[{constraint.kind, constraint.source}];
  if (grammar == nullptr) {
    auto made = grammar::Grammar::Compile(TagVocabulary(), constraint, {}, nullptr);
    QUIRE_CHECK_MSG(made.ok(), StatusMessage(made.status()).c_str());
    grammar = *std::move(made);
  }
  return grammar;
}

std::string TagText(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) {
    if (token != kTagEnd) text += TagTokens().at(static_cast<size_t>(token));
  }
  return text;
}

std::span<const Constraint> TagConstraints() {
  static const auto* constraints = new std::vector<Constraint>{
      ConstraintOf(ConstraintKind::kRegex, "[a-c]{3}[0-9]+"),
      ConstraintOf(ConstraintKind::kRegex, "(abc|12)*"),
      ConstraintOf(ConstraintKind::kChoice, R"(["true","false","null","abc"])"),
      ConstraintOf(
          ConstraintKind::kJsonSchema,
          R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["ab",12]}},)"
          R"("required":["a","b"],"additionalProperties":false})"),
      ConstraintOf(ConstraintKind::kJsonSchema,
                   R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":4})"),
      ConstraintOf(ConstraintKind::kGrammar,
                   "root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= [a-f]+"),
      ConstraintOf(ConstraintKind::kRegex, "[a-c]xyzwvu([0-9]ts|truexyz)"),  // little is free
  };
  return *constraints;
}

}  // namespace quire::test
