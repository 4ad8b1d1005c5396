// Grammars that force tool calls, compiled as a worker compiles them: what they let a model write
// is read as whole calls that fit their tools, whatever it chooses.
#include "common/dialect/forcing.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/dialect/parser.h"
#include "common/json/json.h"
#include "tests/common/grammar/grammar_fixtures.h"
#include "tests/common/text/text_fixtures.h"

namespace quire::dialect {
namespace {

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "enum": ["x", "y"]},
                   "c": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["a"]}}},
  {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
    "properties": {"b": {"type": "string"}, "n": {"type": ["integer", "null"]}}}}},
  {"type": "function", "function": {"name": "no_args", "strict": true}}])";

constexpr TokenId kFirstMark = 265;  // behind those of the tiny tokenizer
constexpr int32_t kMaskWidth = 320;

// The tiny tokenizer with a dialect's marks as special tokens.
class Marked {
 public:
  explicit Marked(const Dialect& dialect) {
    const Thoughts* thoughts = FindThoughts(dialect.thoughts);
    std::string json = text::TinyByteLevelJson();
    std::string added;
    ends_ = {grammar::kEnd};
    for (const std::string_view mark : SpecialMarks(&dialect, thoughts)) {
      if (mark == "</s>") continue;  // it has that
      if (!ids_.emplace(mark, kFirstMark + static_cast<TokenId>(ids_.size())).second) continue;
      const TokenId id = ids_.at(std::string(mark));
      added += ",{\"id\":" + std::to_string(id) + ",\"content\":" + Quoted(mark) +
               ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
               "\"special\":true}";
      if (mark == "<|call|>") ends_.push_back(id);
    }
    json.insert(json.find("],\"normalizer\""), added);
    auto tokenizer = text::Tokenizer::FromJson(json);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    vocabulary_ = *grammar::Vocabulary::Make(*tokenizer_, kMaskWidth, ends_);
  }

  static std::string Quoted(std::string_view text) {
    std::string out;
    json::AppendQuoted(text, out);
    return out;
  }

  std::optional<TokenId> Special(std::string_view mark) const {
    const auto id = ids_.find(std::string(mark));
    return id == ids_.end() ? std::nullopt : std::optional(id->second);
  }
  absl::StatusOr<std::shared_ptr<const grammar::Grammar>> Compile(const std::string& lark) const {
    return grammar::Grammar::Compile(vocabulary_, grammar::Of(ConstraintKind::kLark, lark), {},
                                     nullptr);
  }
  bool Ends(TokenId id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::vector<TokenId>& ends() const { return ends_; }

 private:
  std::map<std::string, TokenId> ids_;
  std::vector<TokenId> ends_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
};

Forcing ForcingOf(const Dialect& dialect, const Marked& marked) {
  Forcing forcing;
  forcing.dialect = &dialect;
  forcing.thoughts = FindThoughts(dialect.thoughts);
  forcing.special = [&marked](std::string_view mark) { return marked.Special(mark); };
  return forcing;
}

Answer Parse(const Forcing& forcing, const Marked& marked, const std::vector<TokenId>& ids) {
  ParserOptions options;
  options.dialect = forcing.dialect;
  options.thoughts = forcing.thoughts;
  options.thought_opened = forcing.thought_opened;
  options.tokens = true;
  options.types = std::make_shared<const ToolTypes>(ToolTypes::FromJson(kTools, true).value());
  Parser parser(options);
  Answer answer;
  for (const TokenId id : ids) {
    const std::string_view bytes = marked.tokenizer().TokenBytes(id);
    answer.Add(marked.tokenizer().IsSpecial(id) ? parser.Special(bytes) : parser.Text(bytes));
  }
  answer.Add(parser.Finish());
  EXPECT_EQ(parser.limit(), "");
  return answer;
}

// A model that chooses at random, and likes to end what it has begun.
class Walker {
 public:
  Walker(const Forcing& forcing, const Marked& marked, uint32_t seed)
      : marked_(marked), random_(seed) {
    for (const Trigger& trigger : forcing.dialect->triggers) Likes(trigger.mark.text);
    for (const Mark& mark : forcing.dialect->openers) Likes(mark.text);
    Likes(forcing.dialect->tagged.value_end);
    Likes("\n" + std::string(forcing.dialect->tagged.value_end));
    if (forcing.thoughts != nullptr) {
      for (const Mark& mark : forcing.thoughts->closes) Likes(mark.text);
    }
    for (const char* end : {"\"", "}", "]", ")"}) Likes(end);
  }

  // Empty: it did not come to an end.
  std::vector<TokenId> Walk(const grammar::Grammar& grammar) {
    const std::unique_ptr<grammar::Matcher> matcher = grammar.NewMatcher();
    std::vector<TokenId> ids;
    std::vector<uint32_t> mask(kMaskWidth / 32 + 1);
    written_.clear();
    for (int step = 0; step < 400; ++step) {
      EXPECT_TRUE(matcher->Mask(mask).ok());
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < kMaskWidth; ++id) {
        if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
      }
      if (allowed.empty()) break;
      const TokenId id = Choose(allowed);
      if (marked_.Ends(id)) {
        EXPECT_TRUE(matcher->MayEnd());
        ids.push_back(id);
        return ids;
      }
      EXPECT_TRUE(matcher->Accept({&id, 1}).ok());
      ids.push_back(id);
      written_ += marked_.tokenizer().TokenBytes(id);
      if (written_.size() > 128) written_.erase(0, 64);
    }
    return {};
  }

 private:
  void Likes(std::string_view text) {
    if (!text.empty()) liked_.emplace_back(text);
  }

  bool GoesOn(TokenId id) const {
    const std::string_view end = written_;
    const std::string text =
        std::string(end.substr(end.size() - std::min<size_t>(end.size(), 40))) +
        std::string(marked_.tokenizer().TokenBytes(id));
    for (const std::string& mark : liked_) {
      for (size_t size = 1; size <= mark.size(); ++size) {
        if (text.ends_with(std::string_view(mark).substr(0, size))) return true;
      }
    }
    return false;
  }

  TokenId Choose(const std::vector<TokenId>& allowed) {
    std::vector<TokenId> liked;
    for (const TokenId id : allowed) {
      if (marked_.Ends(id) || marked_.tokenizer().IsSpecial(id) || GoesOn(id)) liked.push_back(id);
    }
    const std::vector<TokenId>& from = liked.empty() || random_() % 5 == 0 ? allowed : liked;
    return from[random_() % from.size()];
  }

  const Marked& marked_;
  std::mt19937 random_;
  std::vector<std::string> liked_;
  std::string written_;
};

bool IsInteger(const json::Value& value) { return value.is_int64() || value.is_uint64(); }

// What kTools say, by hand.
void ExpectFits(const Answer::Call& call) {
  const auto parsed = json::Parse(call.arguments);
  ASSERT_TRUE(parsed.ok() && parsed->is_object()) << call.name << call.arguments;
  const json::Object& arguments = parsed->get_object();
  size_t known = 0;
  const auto check = [&](std::string_view key, bool required, auto&& fits) {
    const json::Value* value = json::Find(arguments, key);
    if (value == nullptr) {
      EXPECT_FALSE(required) << call.arguments;
      return;
    }
    ++known;
    EXPECT_TRUE(fits(*value)) << call.name << key << call.arguments;
  };
  if (call.name == "f") {
    check("a", true, [](const json::Value& v) { return IsInteger(v) || v.is_double(); });
    check("b", false, [](const json::Value& v) { return v == "x" || v == "y"; });
    check("c", false, [](const json::Value& v) { return v.is_array(); });
  } else if (call.name == "g") {
    check("b", false, [](const json::Value& v) { return v.is_string(); });
    check("n", false,
          [](const json::Value& v) { return v.is_null() || IsInteger(v) || v.is_double(); });
  } else {
    EXPECT_EQ(call.name, "no_args");
  }
  EXPECT_EQ(known, arguments.size()) << call.arguments;
}

class ForcingTest : public testing::TestWithParam<const Dialect*> {};

TEST_P(ForcingTest, WhateverIsChosenIsWholeCallsThatFit) {
  const Marked marked(*GetParam());
  Forcing forcing = ForcingOf(*GetParam(), marked);
  int ended = 0;
  for (const bool one : {false, true}) {
    forcing.one = one;
    forcing.thought_opened = one && forcing.thoughts->name != "none";
    const auto lark = ForceCalls(forcing, kTools);
    ASSERT_TRUE(lark.ok()) << lark.status();
    const auto grammar = marked.Compile(*lark);
    ASSERT_TRUE(grammar.ok()) << grammar.status() << "\n" << *lark;
    for (uint32_t seed = 0; seed < 6; ++seed) {
      const std::vector<TokenId> ids = Walker(forcing, marked, seed).Walk(**grammar);
      if (ids.empty()) continue;
      ++ended;
      const Answer answer = Parse(forcing, marked, ids);
      SCOPED_TRACE(marked.tokenizer().Decode(ids, false));
      EXPECT_EQ(answer.content, "");
      EXPECT_GE(answer.calls.size(), 1u);
      EXPECT_TRUE(!one || answer.calls.size() == 1);
      for (const Answer::Call& call : answer.calls) ExpectFits(call);
    }
  }
  EXPECT_GE(ended, 3) << "too many walks did not end";
}

constexpr std::string_view kExampleTools = R"([
  {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
   "required": ["a"]}},
  {"name": "g", "parameters": {"properties": {"b": {"type": "string"}}}}])";

// Strings are written as JSON has them.
std::string ExampleOf(const Dialect& dialect) {
  std::string example(dialect.example);
  for (char& c : example) c = c == '\'' ? '"' : c;
  return example;
}

// Whether the grammar takes all of the text, and lets it end there.
bool Takes(const Marked& marked, const std::string& lark, std::string_view text) {
  const auto grammar = marked.Compile(lark);
  EXPECT_TRUE(grammar.ok()) << grammar.status() << "\n" << lark;
  if (!grammar.ok()) return false;
  const auto matcher = (*grammar)->NewMatcher();
  const std::vector<TokenId> ids = marked.tokenizer().Encode(text, false).value();
  for (const TokenId id : ids) {
    if (!matcher->Accept({&id, 1}).ok()) return false;
  }
  return matcher->MayEnd() || matcher->Finished();
}

TEST_P(ForcingTest, TheDialectsOwnExampleIsTaken) {
  const Marked marked(*GetParam());
  const auto lark = ForceCalls(ForcingOf(*GetParam(), marked), kExampleTools);
  ASSERT_TRUE(lark.ok()) << lark.status();
  EXPECT_TRUE(Takes(marked, *lark, ExampleOf(*GetParam()))) << *lark;
}

TEST_P(ForcingTest, ANamedFunctionIsCalledOnce) {
  const Marked marked(*GetParam());
  Forcing forcing = ForcingOf(*GetParam(), marked);
  forcing.named = "no_args";
  const auto grammar = marked.Compile(*ForceCalls(forcing, kTools));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const std::vector<TokenId> ids = Walker(forcing, marked, 1).Walk(**grammar);
  const Answer answer = Parse(forcing, marked, ids);
  ASSERT_EQ(answer.calls.size(), 1u) << marked.tokenizer().Decode(ids, false);
  EXPECT_EQ(answer.calls[0].name, "no_args");
  EXPECT_EQ(json::Serialize(json::Parse(answer.calls[0].arguments).value()), "{}");
}

TEST_P(ForcingTest, StrictToolsHoldInTextOfTheModelsOwn) {
  const Marked marked(*GetParam());
  Forcing forcing = ForcingOf(*GetParam(), marked);
  forcing.count = CallCount::kAny;
  const auto both = ForceCalls(forcing, kExampleTools);
  if (!both.ok()) {
    EXPECT_TRUE(BeginsAsText(*GetParam()));
    EXPECT_NE(both.status().message().find("strict"), std::string::npos) << both.status();
    return;
  }
  const bool channels = GetParam()->form == Form::kChannels;
  const std::string text = channels ? "<|channel|>final<|message|>Hi" : "Hi";
  const std::string call = (channels ? "" : "Hi ") + ExampleOf(*GetParam());
  EXPECT_TRUE(Takes(marked, *both, text));
  EXPECT_TRUE(Takes(marked, *both, call)) << *both;
  const auto other = ForceCalls(forcing, R"([{"name": "other"}])");
  EXPECT_TRUE(Takes(marked, *other, text));
  EXPECT_FALSE(Takes(marked, *other, call)) << *other;
}

TEST_P(ForcingTest, ToolsAboveTheirLimitsAreRefused) {
  const Marked marked(*GetParam());
  const Forcing forcing = ForcingOf(*GetParam(), marked);
  const auto described = [](size_t bytes) {
    return R"([{"name":"f","description":")" + std::string(bytes, 'd') + R"("}])";
  };
  const size_t frame = described(0).size();
  EXPECT_TRUE(ForceCalls(forcing, described((512 << 10) - frame)).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(ForceCalls(forcing, described((512 << 10) - frame + 1)).status()));
  // Definitions of 60 kB that each of 100 parameters refers to.
  std::string properties;
  for (int i = 0; i < 100; ++i) {
    properties += std::string(i > 0 ? "," : "") + "\"p" + std::to_string(i) +
                  R"(":{"type":"object","properties":{"q":{"$ref":"#/$defs/x"}}})";
  }
  const std::string repeated = R"([{"name":"f","parameters":{"$defs":{"x":{"title":")" +
                               std::string(60'000, 't') + R"("}},"properties":{)" + properties +
                               "}}}]";
  const Form form = GetParam()->form;
  const bool each = form == Form::kTagged || form == Form::kNested || form == Form::kPythonic ||
                    form == Form::kBraced;
  EXPECT_EQ(ForceCalls(forcing, repeated).ok(), !each);
}

INSTANTIATE_TEST_SUITE_P(Dialects, ForcingTest,
                         testing::ValuesIn(Dialects().begin(), Dialects().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(Forcing, WhatADialectCannotWriteIsNamed) {
  const auto refused = [](std::string_view dialect, std::string_view tools) {
    Forcing forcing;
    forcing.dialect = FindDialect(dialect);
    return std::string(ForceCalls(forcing, tools).status().message());
  };
  EXPECT_NE(refused("pythonic", R"([{"name": "a-b"}])").find("\"a-b\""), std::string::npos);
  EXPECT_NE(refused("hermes", R"([{"name": "a b"}])").find("\"a b\""), std::string::npos);
  EXPECT_NE(
      refused("qwen3_coder",
              R"([{"name": "f", "parameters": {"properties": {"<": {}}, "required": ["<"]}}])")
          .find("parameter \"<\""),
      std::string::npos);
  EXPECT_NE(refused("hermes", "[]").find("no function"), std::string::npos);
  std::string large = R"([{"name": "f", "parameters": {"description": ")";
  large += std::string(size_t{256} << 10, 'x') + "\"}}]";
  EXPECT_NE(refused("hermes", large).find("bytes"), std::string::npos);
}

TEST(Forcing, StrictIsFoundInEitherShape) {
  EXPECT_TRUE(AnyStrict(R"([{"name": "f"}, {"name": "g", "strict": true}])"));
  EXPECT_TRUE(AnyStrict(R"([{"type": "function", "function": {"name": "g", "strict": true}}])"));
  EXPECT_FALSE(AnyStrict(R"([{"name": "f", "strict": false}])"));
  EXPECT_FALSE(AnyStrict("no JSON"));
}

}  // namespace
}  // namespace quire::dialect
