#include "tests/common/grammar/grammar_fixtures.h"

#include "absl/strings/str_cat.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::grammar {

std::shared_ptr<const Vocabulary> TinyVocabulary() {
  static const auto* vocabulary = [] {
    const auto tokenizer = text::Tokenizer::FromJson(text::TinyByteLevelJson());
    const TokenId end = kEnd;
    return new std::shared_ptr<const Vocabulary>(
        *Vocabulary::Make(**tokenizer, kWidth, {&end, 1}));  // outlives the tokenizer
  }();
  return *vocabulary;
}

Constraint Of(ConstraintKind kind, std::string_view source) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.source = source;
  return constraint;
}

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const Constraint& constraint,
                                                       const Limits& limits) {
  return Grammar::Compile(TinyVocabulary(), constraint, limits, nullptr);
}

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(ConstraintKind kind, std::string_view source,
                                                       const Limits& limits) {
  return Compile(Of(kind, source), limits);
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char letter : text) ids.push_back(static_cast<uint8_t>(letter));
  return ids;
}

std::vector<uint32_t> MaskOf(Matcher& matcher) {
  std::vector<uint32_t> mask(TinyVocabulary()->mask_words());
  if (!matcher.Mask(mask).ok()) mask.clear();
  return mask;
}

bool Has(const std::vector<uint32_t>& mask, TokenId id) {
  const auto word = static_cast<size_t>(id / 32);
  return word < mask.size() && (mask[word] >> (id % 32) & 1) != 0;
}

bool Takes(const Grammar& grammar, std::string_view text) {
  const std::unique_ptr<Matcher> matcher = grammar.NewMatcher();
  for (const TokenId id : Bytes(text)) {
    if (!matcher->Accept({&id, 1}).ok()) return false;
  }
  return matcher->MayEnd();
}

std::string Refused(const absl::Status& status) {
  if (status.ok()) return "ok";
  return absl::StrCat("fault ", static_cast<int>(FaultOf(status)), ": ",
                      absl::string_view(status.message()));
}

}  // namespace quire::grammar
