// The pool's masks are those of a matcher that walks the text alone, with any number of threads.
#include "worker/constrain/mask_pool.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/tag_grammar.h"

namespace quire {
namespace {

constexpr int32_t kVocab = test::kTagEnd + 1;

std::vector<uint32_t> MaskAlone(const Constraint& constraint, const std::vector<TokenId>& tokens) {
  const std::unique_ptr<grammar::Matcher> matcher = test::TagGrammar(constraint)->NewMatcher();
  EXPECT_TRUE(matcher->Accept(tokens).ok());
  std::vector<uint32_t> mask(kVocab / 32);
  EXPECT_TRUE(matcher->Finished() || matcher->Mask(mask).ok());
  return mask;
}

TokenId AnyOf(std::span<const uint32_t> mask, std::mt19937_64& rng) {
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < kVocab; ++id) {
    if ((mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0) allowed.push_back(id);
  }
  return allowed.empty() ? -1 : allowed[rng() % allowed.size()];
}

// Random texts of all constraints at once, which end and begin again.
void WriteTexts(int threads) {
  MaskPool pool({.threads = threads, .vocab_size = kVocab});
  std::mt19937_64 rng(static_cast<uint64_t>(threads) + 1);
  struct Text {
    uint64_t sequence = 0;
    const Constraint* constraint = nullptr;
    std::vector<TokenId> tokens;
  };
  std::vector<Text> texts(16);
  uint64_t next_sequence = 1;
  for (int step = 0; step < 60; ++step) {
    for (Text& text : texts) {
      if (text.sequence != 0) continue;
      text.constraint = &test::TagConstraints()[rng() % test::TagConstraints().size()];
      text.sequence = next_sequence++;
      pool.Begin(text.sequence, {test::TagGrammar(*text.constraint)}, text.tokens);
    }
    pool.Send();
    for (Text& text : texts) {
      if (rng() % 16 == 0) {  // it leaves, perhaps while its mask is being computed
        pool.End(text.sequence);
        ASSERT_TRUE(pool.MaskOf(text.sequence).empty());
        text = {};
        continue;
      }
      const std::span<const uint32_t> mask = pool.MaskOf(text.sequence);
      const std::vector<uint32_t> alone = MaskAlone(*text.constraint, text.tokens);
      ASSERT_TRUE(std::equal(mask.begin(), mask.end(), alone.begin(), alone.end()));
      if (pool.Look(text.sequence) == TextState::kFinished) {
        pool.End(text.sequence);
        text = {};
        continue;
      }
      ASSERT_EQ(pool.Look(text.sequence), TextState::kGoesOn);
      text.tokens.push_back(AnyOf(mask, rng));
      pool.Accept(text.sequence, text.tokens.back());
    }
    pool.Send();
  }
  EXPECT_GT(pool.bytes(), 0u);
}

// The threads are behind all the while: the engine takes each mask as soon as it has let go of it.
TEST(MaskPool, ATextWaitsForAThreadOnce) {
  constexpr size_t kTexts = 4;
  MaskPool pool({.threads = 1, .vocab_size = kVocab});
  const Constraint constraint = test::ConstraintOf(ConstraintKind::kRegex, "[a-z]*");
  for (uint64_t sequence = 1; sequence <= kTexts; ++sequence) {
    pool.Begin(sequence, {test::TagGrammar(constraint)}, {});
  }
  std::mt19937_64 rng(1);
  size_t most = 0;
  for (int step = 0; step < 2000; ++step) {
    pool.Send();
    most = std::max(most, pool.queued());
    for (uint64_t sequence = 1; sequence <= kTexts; ++sequence) {
      const std::span<const uint32_t> mask = pool.MaskOf(sequence);
      TokenId token = test::kTagEnd;
      while (token == test::kTagEnd) token = AnyOf(mask, rng);
      pool.Accept(sequence, token);
    }
  }
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, kTexts);
}

TEST(MaskPool, MasksAreThoseOfAMatcherAlone) { WriteTexts(0); }
TEST(MaskPool, ThreadsComputeThem) {
  WriteTexts(1);
  WriteTexts(3);
}

// Right and wrong drafts, the text's own and others', in any number of threads.
void WriteDraftedTexts(int threads) {
  MaskPool pool({.threads = threads, .vocab_size = kVocab});
  std::mt19937_64 rng(static_cast<uint64_t>(threads) + 5);
  uint64_t sequence = 0;
  size_t ahead_drafts = 0;
  size_t kept = 0;
  for (int round = 0; round < 60; ++round) {
    const Constraint constraint =
        round % 3 == 0 ? test::ConstraintOf(ConstraintKind::kRegex, "[a-c]xyzwv[0-9]uts")
                       : test::TagConstraints()[rng() % test::TagConstraints().size()];
    std::vector<TokenId> tokens;
    pool.Begin(++sequence, {test::TagGrammar(constraint)}, tokens);
    for (int step = 0; step < 12; ++step) {
      std::vector<TokenId> drafts(pool.Ahead(sequence).begin(), pool.Ahead(sequence).end());
      const bool ahead = !drafts.empty();
      ahead_drafts += drafts.size();
      while (!ahead && drafts.size() < rng() % 4) {  // a walk, wrong at last
        std::vector<TokenId> before = tokens;
        before.insert(before.end(), drafts.begin(), drafts.end());
        const TokenId next = AnyOf(MaskAlone(constraint, before), rng);
        drafts.push_back(next < 0 || rng() % 4 == 0 ? static_cast<TokenId>(rng() % 60) : next);
        if (next != drafts.back()) break;
      }
      if (!drafts.empty()) pool.Draft(sequence, drafts, ahead);
      pool.Send();
      std::vector<TokenId> taken;
      for (size_t place = 0; place <= drafts.size(); ++place) {
        const std::span<const uint32_t> mask = pool.MaskOf(sequence, place);
        if (place >= pool.Masks(sequence)) break;
        const std::vector<uint32_t> alone = MaskAlone(constraint, tokens);
        ASSERT_TRUE(std::equal(mask.begin(), mask.end(), alone.begin(), alone.end()));
        taken.push_back(AnyOf(mask, rng));
        tokens.push_back(taken.back());
        if (place == drafts.size() || taken.back() != drafts[place]) break;
        ++kept;
      }
      if (taken.empty()) break;  // the text is complete
      const size_t count = taken.size();
      const bool all = count == pool.Masks(sequence) && count <= drafts.size() &&
                       taken.back() == drafts[count - 1];
      if (all && pool.Look(sequence) == TextState::kFinished) break;
      for (const TokenId token : taken) pool.Accept(sequence, token);
      pool.EndStep(rng() % 2 == 0);
      ASSERT_FALSE(pool.Astray(sequence));
    }
    pool.End(sequence);
  }
  EXPECT_GT(ahead_drafts, 20u);
  EXPECT_GT(kept, ahead_drafts);
}

TEST(MaskPool, EachDraftHasTheMaskOfItsOwnPlace) { WriteDraftedTexts(0); }
TEST(MaskPool, ThreadsComputeThoseOfDraftsToo) { WriteDraftedTexts(3); }

TEST(MaskPool, ATextThatFollowedARejectedDraftIsAstray) {
  MaskPool pool({.vocab_size = kVocab});
  const Constraint constraint = test::ConstraintOf(ConstraintKind::kRegex, "xyzw");
  pool.Begin(1, {test::TagGrammar(constraint)}, {});
  pool.MaskOf(1);
  const std::vector<TokenId> ahead(pool.Ahead(1).begin(), pool.Ahead(1).end());
  ASSERT_EQ(ahead.size(), 4u);
  pool.Draft(1, ahead, true);
  pool.MaskOf(1, 4);
  EXPECT_EQ(pool.Masks(1), 4u);
  EXPECT_EQ(pool.Look(1), TextState::kFinished);
  EXPECT_TRUE(pool.Astray(1));
  pool.Accept(1, ahead[0]);
  EXPECT_TRUE(pool.Astray(1));  // the others have not come
  pool.Accept(1, 0);
  EXPECT_TRUE(pool.Astray(1));
}

TEST(MaskPool, NothingIsAheadWithoutTheFlag) {
  MaskPool pool({.vocab_size = kVocab, .looks_ahead = false});
  pool.Begin(1, {test::TagGrammar(test::ConstraintOf(ConstraintKind::kRegex, "xyzw"))}, {});
  pool.MaskOf(1);
  EXPECT_TRUE(pool.Ahead(1).empty());
}

TEST(MaskPool, AMaskStaysUntilATokenIsAccepted) {
  MaskPool pool({.vocab_size = kVocab});
  pool.Begin(1, {test::TagGrammar(test::TagConstraints()[0])}, {});
  const std::vector<uint32_t> first(pool.MaskOf(1).begin(), pool.MaskOf(1).end());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), pool.MaskOf(1).begin()));
  pool.Accept(1, 0);
  pool.MaskOf(1);
  pool.Accept(1, 1);
  pool.MaskOf(1);
  pool.Accept(1, 2);
  EXPECT_FALSE(std::equal(first.begin(), first.end(), pool.MaskOf(1).begin()));
}

TEST(MaskPool, ATextThatFailsAllowsNothingAndSaysWhy) {
  MaskPool pool({.vocab_size = kVocab});
  const std::vector<TokenId> forbidden{30};
  pool.Begin(1, {test::TagGrammar(test::TagConstraints()[0])}, forbidden);
  for (const uint32_t word : pool.MaskOf(1)) EXPECT_EQ(word, 0u);
  EXPECT_EQ(pool.Look(1), TextState::kFailed);
  EXPECT_EQ(pool.WhyFailed(1), "constraint: the constraint does not allow the token with index 0");
}

// What the states of one text hold is the limit: with it the text goes on, with a byte less not.
TEST(MaskPool, TheMemoryOfStatesIsBounded) {
  size_t held = 0;
  {
    MaskPool pool({.vocab_size = kVocab});
    pool.Begin(1, {test::TagGrammar(test::TagConstraints()[0])}, {});
    pool.Send();
    pool.MaskOf(1);
    held = pool.bytes();
    pool.End(1);
    EXPECT_EQ(pool.bytes(), 0u);
  }
  ASSERT_GT(held, 0u);
  for (const size_t less : {size_t{0}, size_t{1}}) {
    MaskPool pool({.vocab_size = kVocab, .max_bytes = held - less});
    pool.Begin(1, {test::TagGrammar(test::TagConstraints()[0])}, {});
    pool.MaskOf(1);
    EXPECT_EQ(pool.Look(1), less == 0 ? TextState::kGoesOn : TextState::kFailed);
  }
}

// --- budgets of thoughts

std::shared_ptr<const ThoughtBudget> Budget(uint32_t tokens, bool opened = false) {
  return std::make_shared<const ThoughtBudget>(
      ThoughtBudget{tokens, opened, false, {{1, 2}}, {{3}}, {4, 5}});
}

// The only token that may come next; -1: all may.
TokenId OnlyOne(std::span<const uint32_t> mask, int32_t vocab_size) {
  std::vector<TokenId> allowed;
  for (size_t id = 0; id < mask.size() * 32; ++id) {
    if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(static_cast<TokenId>(id));
  }
  EXPECT_TRUE(allowed.size() == 1 || allowed.size() == static_cast<size_t>(vocab_size));
  return allowed.size() == 1 ? allowed[0] : -1;
}

// What a budget demands before each of these tokens, and after the last one.
std::vector<TokenId> Demanded(const std::shared_ptr<const ThoughtBudget>& budget,
                              const std::vector<TokenId>& tokens) {
  constexpr int32_t kWidth = 40;
  MaskPool pool({.vocab_size = kWidth});
  pool.Begin(1, {nullptr, budget}, {});
  std::vector<TokenId> demanded{OnlyOne(pool.MaskOf(1), kWidth)};
  for (size_t i = 0; i < tokens.size(); ++i) {
    pool.Accept(1, tokens[i]);
    demanded.push_back(OnlyOne(pool.MaskOf(1), kWidth));
    // A text that begins with these tokens is at the same place.
    MaskPool resumed({.vocab_size = kWidth});
    resumed.Begin(1, {nullptr, budget}, std::span(tokens).first(i + 1));
    EXPECT_EQ(OnlyOne(resumed.MaskOf(1), kWidth), demanded.back()) << i;
  }
  EXPECT_EQ(pool.Look(1), TextState::kGoesOn);
  return demanded;
}

TEST(MaskPool, AThoughtEndsWhenItsBudgetIsUsedUp) {
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(Demanded(Budget(2), {9, 1, 2, 9, 9, 4, 5, 9}),
            (Tokens{-1, -1, -1, -1, -1, 4, 5, -1, -1}));
  EXPECT_EQ(Demanded(Budget(2), {9, 1, 2, 9, 3, 9, 9, 9}), Tokens(9, -1)) << "it ends by itself";
  EXPECT_EQ(Demanded(Budget(2), {1, 9, 2, 9, 9, 9}), Tokens(7, -1)) << "no thought begins";
  EXPECT_EQ(Demanded(Budget(0, true), {4, 5, 9}), (Tokens{4, 5, -1, -1})) << "nothing is thought";
  EXPECT_EQ(Demanded(Budget(0), {1, 2, 4, 5, 1, 2, 9}), (Tokens{-1, -1, 4, 5, -1, -1, -1, -1}))
      << "a second one is text";
  ThoughtBudget again = *Budget(2, true);
  again.repeats = true;
  EXPECT_EQ(Demanded(std::make_shared<const ThoughtBudget>(again), {9, 3, 7, 1, 2, 4, 5, 7, 1, 2}),
            (Tokens{-1, -1, -1, -1, -1, 4, 5, -1, -1, -1, 4}))
      << "the budget is for all of them";
  EXPECT_EQ(Demanded(Budget(1, true), {9, 8, 9}), (Tokens{-1, 4, -1, -1}))
      << "tokens of a worker that knows no budget";
}

// The end of a thought comes where the grammar takes it, or after a few more tokens, or never.
TEST(MaskPool, AGrammarSaysWhereAThoughtMayEnd) {
  const auto grammar = test::TagGrammar(test::ConstraintOf(ConstraintKind::kRegex, "x{2}[m-s]*"));
  MaskPool pool({.vocab_size = kVocab});
  const auto budget = std::make_shared<const ThoughtBudget>(
      ThoughtBudget{0, true, false, {}, {}, {12, 13}});  // "mn"
  pool.Begin(1, {grammar, budget}, {});
  const std::vector<TokenId> text{23, 23, 12, 13};
  for (size_t i = 0; i < text.size(); ++i) {
    const std::span<const uint32_t> mask = pool.MaskOf(1);
    EXPECT_EQ(std::popcount(mask[0]) + std::popcount(mask[1]), 1) << i;
    EXPECT_EQ(mask[0], 1u << text[i]) << i;
    pool.Accept(1, text[i]);
  }
  EXPECT_EQ(std::popcount(pool.MaskOf(1)[0]), 7) << "m to s";

  const auto never = test::TagGrammar(test::ConstraintOf(ConstraintKind::kRegex, "x{8}[m-s]*"));
  pool.Begin(2, {never, budget}, {});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(pool.MaskOf(2)[0], 1u << 23) << i;
    pool.Accept(2, 23);
  }
  EXPECT_EQ(std::popcount(pool.MaskOf(2)[0]), 7);
}

}  // namespace
}  // namespace quire
