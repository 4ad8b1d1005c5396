// Holds constraints against texts over a real tokenizer: constraint_check TOKENIZER.JSON END…
//
// Each line of the input is {"kind", "source", "texts", "walks"}: texts are tried, and as many
// texts are made as there are seeds in "walks", by drawing among the tokens of the masks. Each
// answer is a line {"error"} or {"taken": […], "walks": [text, or null if it did not end]}.
#include <cstdio>
#include <iostream>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/grammar/grammar.h"
#include "common/json/json.h"
#include "common/text/tokenizer.h"

namespace quire::grammar {
namespace {

constexpr size_t kMostTokens = 400;
constexpr size_t kHurryAfter = 40;

struct Setup {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<TokenId> ends;
};

bool Takes(const Setup& setup, const Grammar& grammar, std::string_view text) {
  const auto ids = setup.tokenizer->Encode(text, false);
  const auto matcher = grammar.NewMatcher();
  return ids.ok() && matcher->Accept(*ids).ok() && matcher->MayEnd();
}

// A token that the mask has; late in a text one that closes something, if there is one.
TokenId Draw(const Setup& setup, const std::vector<uint32_t>& mask, bool hurry,
             std::mt19937& random) {
  std::vector<TokenId> allowed;
  std::vector<TokenId> closing;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      const auto id = static_cast<TokenId>(word * 32 + static_cast<size_t>(__builtin_ctz(bits)));
      allowed.push_back(id);
      const std::string_view bytes = setup.tokenizer->TokenBytes(id);
      const bool closes = bytes.size() == 1 && absl::StrContains("\"]}0.:,", bytes[0]);
      if (closes) closing.push_back(id);
    }
  }
  if (allowed.empty()) return -1;
  const auto& from = hurry && !closing.empty() ? closing : allowed;
  return from[random() % from.size()];
}

json::Value Walk(const Setup& setup, const Grammar& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  const auto matcher = grammar.NewMatcher();
  std::vector<TokenId> ids;
  std::vector<uint32_t> mask(setup.vocabulary->mask_words());
  std::vector<uint32_t> again(mask.size());
  while (!matcher->Finished()) {
    if (matcher->MayEnd() && (ids.size() > kHurryAfter || random() % 4 == 0)) break;
    if (ids.size() == kMostTokens) return nullptr;
    const absl::Status status = matcher->Mask(mask);
    if (!status.ok()) return json::Value(json::BoostView(absl::StrCat("!", status.message())));
    if (ids.size() % 8 == 0) {  // a matcher that takes them all at once is in the same state
      const auto resumed = grammar.NewMatcher();
      if (!resumed->Accept(ids).ok() || !resumed->Mask(again).ok() || again != mask) {
        return json::Value("!the state is not a function of the tokens");
      }
    }
    ids.push_back(Draw(setup, mask, ids.size() > kHurryAfter, random));
    if (!matcher->Accept({&ids.back(), 1}).ok()) return json::Value("!a token of the mask fails");
  }
  for (const TokenId end : setup.ends) std::erase(ids, end);
  std::string text;
  for (const TokenId id : ids) text += setup.tokenizer->TokenBytes(id);
  return json::Value(json::BoostView(text));
}

std::string Answer(const Setup& setup, const json::Object& line) {
  Constraint constraint;
  constraint.kind = static_cast<ConstraintKind>(line.at("kind").to_number<int>());
  constraint.source = json::View(line.at("source").as_string());
  json::Object answer;
  const auto grammar = Grammar::Compile(setup.vocabulary, constraint, Limits(), nullptr);
  if (!grammar.ok()) {
    answer["error"] = json::BoostView(std::string(grammar.status().message()));
    return json::Serialize(answer);
  }
  json::Array taken;
  for (const auto& text : line.at("texts").as_array()) {
    taken.push_back(json::Value(Takes(setup, **grammar, json::View(text.as_string()))));
  }
  json::Array walks;
  for (const auto& seed : line.at("walks").as_array()) {
    walks.push_back(Walk(setup, **grammar, seed.to_number<uint32_t>()));
  }
  answer["taken"] = taken;
  answer["walks"] = walks;
  return json::Serialize(answer);
}

int Main(int argc, char** argv) {
  if (argc < 2) return 2;
  Setup setup;
  std::FILE* file = std::fopen(argv[1], "rb");
  if (file == nullptr) return 2;
  std::string source;
  char buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof buffer, file))
    source.append(buffer, size);
  std::fclose(file);
  auto tokenizer = text::Tokenizer::FromJson(source);
  if (!tokenizer.ok()) return 2;
  setup.tokenizer = *std::move(tokenizer);
  for (int i = 2; i < argc; ++i) {
    if (const auto id = setup.tokenizer->PieceToId(argv[i])) setup.ends.push_back(*id);
  }
  const int32_t width = setup.tokenizer->VocabSize() + 128;  // as models pad theirs
  auto vocabulary = Vocabulary::Make(*setup.tokenizer, width, setup.ends);
  if (!vocabulary.ok()) return 2;
  setup.vocabulary = *std::move(vocabulary);
  const size_t estimate = Vocabulary::EstimateBytes(*setup.tokenizer);
  std::cerr << setup.vocabulary->MemoryBytes() << " bytes of " << estimate << "\n";
  if (setup.vocabulary->MemoryBytes() > estimate) return 3;
  for (std::string line; std::getline(std::cin, line);) {
    const auto value = json::Parse(line, {.max_depth = 200});
    if (!value.ok()) return 4;
    std::cout << Answer(setup, value->as_object()) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace quire::grammar

int main(int argc, char** argv) { return quire::grammar::Main(argc, argv); }
