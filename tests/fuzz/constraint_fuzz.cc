// Fuzzes what compiles constraints and what walks texts through them: nothing gives up, tokens of a
// mask are accepted, the end is in masks exactly where the text may end, and a matcher that takes
// all tokens at once is in the same state.
//
// The input is the digit of a ConstraintKind, an option's letter, and the source; behind a zero
// byte come bytes that choose among the allowed tokens.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grammar/grammar.h"

namespace quire::grammar {
namespace {

constexpr TokenId kEnd = 256;
constexpr int32_t kWidth = 280;
constexpr size_t kMostTokens = 24;

// The letter that byte-level tokenizers have for a byte, as JSON.
std::string Letter(int byte) {
  static int above = 0;
  const bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
  const int code = plain ? byte : 256 + above++;
  char text[8];
  std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(code));
  return text;
}

std::shared_ptr<const Vocabulary> MakeVocabulary() {
  std::string pieces;
  for (int byte = 0; byte < 256; ++byte)
    absl::StrAppend(&pieces, "\"", Letter(byte), "\":", byte, ",");
  const auto tokenizer = text::Tokenizer::FromJson(absl::StrCat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":256,)",
      R"("content":"</s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,)",
      R"("normalized":false}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel",)",
      R"("add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,)",
      R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)",
      R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)",
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)",
      R"("byte_fallback":false,"merges":[],"vocab":{)", pieces, R"("</s>":256}}})"));
  if (!tokenizer.ok()) std::abort();
  const TokenId end = kEnd;
  return *Vocabulary::Make(**tokenizer, kWidth, {&end, 1});
}

bool Has(const std::vector<uint32_t>& mask, TokenId id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

void Walk(const Grammar& grammar, std::string_view choices) {
  const auto matcher = grammar.NewMatcher();
  std::vector<TokenId> ids;
  std::vector<uint32_t> mask((kWidth + 31) / 32);
  for (const char choice : choices.substr(0, kMostTokens)) {
    const absl::Status status = matcher->Mask(mask);
    if (absl::IsInternal(status)) std::abort();
    if (!status.ok()) {
      if (FaultOf(status) == Fault::kNone || matcher->Mask(mask) != status) std::abort();
      return;
    }
    if (Has(mask, kEnd) != matcher->MayEnd()) std::abort();
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < kWidth; ++id) {
      if (Has(mask, id)) allowed.push_back(id);
    }
    if (allowed.empty() || allowed.back() > kEnd) std::abort();
    ids.push_back(allowed[static_cast<uint8_t>(choice) % allowed.size()]);
    const absl::Status taken = matcher->Accept({&ids.back(), 1});
    if (!taken.ok() && absl::IsInvalidArgument(taken)) std::abort();
    if (!taken.ok() || matcher->Finished()) break;
  }
  const auto again = grammar.NewMatcher();
  if (again->Accept(ids).ok() && again->MayEnd() != matcher->MayEnd()) std::abort();
}

}  // namespace
}  // namespace quire::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire;
  static const auto* vocabulary =
      new std::shared_ptr<const grammar::Vocabulary>(grammar::MakeVocabulary());
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.size() < 2) return 0;
  const size_t end = input.find('\0', 2);
  Constraint constraint;
  constraint.kind = static_cast<ConstraintKind>(input[0] - '0');
  constraint.source = input.substr(2, end == std::string_view::npos ? end : end - 2);
  constraint.compact = input[1] == 'c';
  constraint.closed = input[1] == 'o';
  if (input[1] == 'w') constraint.whitespace_pattern = "[ \\n]?";
  grammar::Limits limits;
  limits.initial_lexer_fuel /= 10;  // inputs are small
  limits.step_lexer_fuel /= 10;
  limits.step_max_items /= 10;
  const auto compiled = grammar::Grammar::Compile(*vocabulary, constraint, limits, nullptr);
  if (!compiled.ok()) {
    if (absl::IsInternal(compiled.status())) std::abort();
    return 0;
  }
  grammar::Walk(**compiled, end == std::string_view::npos ? "aZ9?m\"}q1" : input.substr(end + 1));
  return 0;
}
