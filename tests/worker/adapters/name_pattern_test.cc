// Patterns of names match as Python's expressions do, as far as they are read; what is not read,
// and what would take too much, is refused.
#include "worker/adapters/name_pattern.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace quire {
namespace {

NamePattern Parsed(std::string_view text) {
  auto pattern = NamePattern::Parse(text);
  EXPECT_TRUE(pattern.ok()) << text << ": " << pattern.status();
  return pattern.ok() ? *std::move(pattern) : NamePattern();
}

bool Matches(const NamePattern& pattern, std::string_view name) {
  PatternSteps steps;
  return pattern.Matches(name, steps);
}

bool MatchesEnd(std::string_view pattern, std::string_view name) {
  PatternSteps steps;
  return Parsed(pattern).MatchesEnd(name, steps);
}

TEST(NamePattern, MatchesWholeNames) {
  const struct {
    const char* pattern;
    const char* name;
    bool matches;
  } kCases[] = {
      {"q_proj", "q_proj", true},
      {"q_proj", "xq_proj", false},
      {"q.proj", "q_proj", true},
      {R"(q\.proj)", "q_proj", false},
      {R"(.*\.(q|v)_proj)", "model.layers.0.self_attn.v_proj", true},
      {R"(.*\.(q|v)_proj)", "model.layers.0.self_attn.k_proj", false},
      {R"(.*(q|v)_proj$)", "v_proj", true},
      {R"(model\.layers\.(?:1?[0-3])\.mlp\.[a-z]+_proj)", "model.layers.13.mlp.up_proj", true},
      {R"(model\.layers\.(?:1?[0-3])\.mlp\.[a-z]+_proj)", "model.layers.14.mlp.up_proj", false},
      {R"(layers\.\d+\.x)", "layers.507.x", true},
      {R"(layers\.\d{2}\.x)", "layers.507.x", false},
      {R"(layers\.\d{2,}\.x)", "layers.507.x", true},
      {R"(layers\.\d{1,2}\.x)", "layers.507.x", false},
      {R"([^.]+\.\w+)", "a.b_1", true},
      {R"([^.]+\.\w+)", "a.b.c", false},
      {"(a|b|)c", "c", true},
      {"a*?b+?", "aab", true},
      {"[]a]", "]", true},
      {"[a-]", "-", true},
      {"", "", true},
      {"", "a", false},
      {"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(Matches(Parsed(one.pattern), one.name), one.matches)
        << one.pattern << " " << one.name;
  }
}

// As PEFT: (.*\.)?(pattern)$.
TEST(NamePattern, MatchesEndsBehindDots) {
  const std::string name = "model.decoder.layers.0.self_attn.k_proj";
  EXPECT_TRUE(MatchesEnd("k_proj", name));
  EXPECT_TRUE(MatchesEnd("self_attn.k_proj", name));
  EXPECT_TRUE(MatchesEnd(R"(layers\.\d\..*)", name));
  EXPECT_FALSE(MatchesEnd("proj", name));
  EXPECT_FALSE(MatchesEnd("attn.k_proj", name));
  EXPECT_FALSE(MatchesEnd("^k_proj", name));
  EXPECT_TRUE(MatchesEnd(R"(^model\.decoder.*k_proj)", name));
}

TEST(NamePattern, WhatIsNotReadIsRefusedWithItsPlace) {
  const auto refused = [](std::string_view pattern, std::string_view what) {
    const auto parsed = NamePattern::Parse(pattern);
    ASSERT_FALSE(parsed.ok()) << pattern;
    EXPECT_NE(StatusMessage(parsed.status()).find(what), std::string::npos) << parsed.status();
  };
  refused("(?=a)b", "a group of a special kind at character 3");
  refused("(?<name>a)", "special kind");
  refused(R"(a\b)", "a class of a special kind");
  refused(R"(\1)", "a class of a special kind");
  refused("a**", "a repetition of a repetition");
  refused("*a", "a * at character 1");
  refused("a^b", "a ^ at character 2");
  refused("(a", "a group without an end");
  refused("a)", "an unmatched )");
  refused("[a", "a set without an end");
  refused("[z-a]", "a range that is none");
  refused("a{2,1}", "counts that are none");
  refused("a{x}", "counts that are none");
  refused("a\\", "a \\ before nothing");
}

TEST(NamePattern, LimitsHold) {
  EXPECT_TRUE(NamePattern::Parse(std::string(600, 'a')).ok());
  EXPECT_FALSE(NamePattern::Parse(std::string(kMaxPatternBytes + 1, '.')).ok());
  EXPECT_FALSE(NamePattern::Parse("((a{500}){500}){500}").ok());
  EXPECT_FALSE(NamePattern::Parse("(((){9999}){9999}){9999}").ok());
  const std::string deep =
      std::string(kMaxPatternDepth, '(') + "a" + std::string(kMaxPatternDepth, ')');
  EXPECT_TRUE(NamePattern::Parse(deep).ok());
  EXPECT_FALSE(NamePattern::Parse("(" + deep + ")").ok());
}

// A budget that is used up matches nothing, and says so.
TEST(NamePattern, StepsAreCounted) {
  const NamePattern pattern = Parsed("(a|b|c|d|e|f|g|h)*x");
  const std::string name = std::string(100, 'h') + "x";
  PatternSteps steps;
  ASSERT_TRUE(pattern.Matches(name, steps));
  const int64_t used = kMaxPatternSteps - steps.left;
  EXPECT_GT(used, 100);
  PatternSteps enough{used + 1};
  EXPECT_TRUE(pattern.Matches(name, enough));
  EXPECT_EQ(enough.left, 1);
  PatternSteps few{used};
  EXPECT_FALSE(pattern.Matches(name, few));
  EXPECT_EQ(few.left, 0);
  EXPECT_FALSE(pattern.MatchesEnd("x", few));
}

}  // namespace
}  // namespace quire
