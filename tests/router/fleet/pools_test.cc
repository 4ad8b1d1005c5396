// Names, aliases, pins and shares, on made-up pools.
#include "router/fleet/pools.h"

#include <gtest/gtest.h>

#include <map>

namespace quire {
namespace {

class PoolsTest : public ::testing::Test {
 protected:
  // Pools of "n", with these ready rows.
  std::vector<PoolCapacity> OfName(const std::vector<std::pair<std::string, uint64_t>>& models) {
    pools_.clear();
    for (const auto& [model_id, rows] : models) {
      pools_.push_back({PoolIndex(static_cast<uint32_t>(pools_.size())), "n", model_id, 0});
    }
    std::vector<PoolCapacity> of_name;
    for (size_t i = 0; i < models.size(); ++i) {
      of_name.push_back({&pools_[i], models[i].second, models[i].second > 0});
    }
    return of_name;
  }
  std::string Chosen(const std::vector<PoolCapacity>& of_name, uint64_t key = 1) {
    const Pool* pool = ChoosePool(rules_, of_name, key);
    return pool == nullptr ? "none" : pool->model_id;
  }
  std::map<std::string, int> Dealt(const std::vector<PoolCapacity>& of_name) {
    std::map<std::string, int> counts;
    for (uint64_t key = 0; key < 10'000; ++key)
      ++counts[Chosen(of_name, key * 0x9E3779B97F4A7C15u)];
    return counts;
  }
  void SetWeights(const std::string& text) { rules_ = ReadPoolRules({{}, {}, {text}}).value(); }

  PoolRules rules_;
  std::vector<Pool> pools_;
};

TEST_F(PoolsTest, SharesFollowReadyRows) {
  const std::map<std::string, int> dealt = Dealt(OfName({{"a", 64}, {"b", 192}, {"c", 0}}));
  EXPECT_NEAR(dealt.at("a"), 2500, 200);
  EXPECT_NEAR(dealt.at("b"), 7500, 200);
  EXPECT_FALSE(dealt.contains("c"));
}

TEST_F(PoolsTest, SharesFollowWeightsWhereTheyAreSet) {
  SetWeights("n=aa:90,bb:10,dd:0");
  auto of_name = OfName({{"aa11", 1}, {"bb22", 1000}, {"cc33", 1000}, {"dd44", 1000}});
  const std::map<std::string, int> dealt = Dealt(of_name);
  EXPECT_NEAR(dealt.at("aa11"), 9000, 200);
  EXPECT_NEAR(dealt.at("bb22"), 1000, 200);
  EXPECT_EQ(dealt.size(), 2u) << "what weights leave out gets nothing";
  of_name[0].ready_rows = 0;
  EXPECT_EQ(Dealt(of_name).at("bb22"), 10'000) << "nor does who is not ready";
}

TEST_F(PoolsTest, ABeginningStandsForTheFirstThatBeginsSo) {
  SetWeights("n=aa:1");
  EXPECT_EQ(Dealt(OfName({{"aa1", 1}, {"aa2", 1}})).at("aa1"), 10'000);
}

TEST_F(PoolsTest, AChangeOfSharesMovesOnlyWhatItMust) {
  auto of_name = OfName({{"old", 300}, {"new", 100}});
  int moved = 0, wrong = 0, differ = 0;
  for (uint64_t key = 0; key < 4000; ++key) {
    of_name[1].ready_rows = 100;
    const std::string before = Chosen(of_name, key * 0x9E3779B97F4A7C15u);
    of_name[1].ready_rows = 300;
    const std::string after = Chosen(of_name, key * 0x9E3779B97F4A7C15u);
    moved += before == "old" && after == "new" ? 1 : 0;
    wrong += before == "new" && after == "old" ? 1 : 0;
    differ += before != after ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(moved, differ);
  EXPECT_NEAR(moved, 1000, 120);
}

TEST_F(PoolsTest, WithNobodyReadyWhoIsHereAndOfThoseTheLast) {
  auto of_name = OfName({{"a", 0}, {"b", 0}, {"c", 0}});
  EXPECT_EQ(Chosen(of_name), "c");
  of_name[0].attached = of_name[1].attached = true;
  EXPECT_EQ(Chosen(of_name), "b");
  SetWeights("n=a:1");
  EXPECT_EQ(Chosen(of_name), "a");
  SetWeights("n=z:1");
  EXPECT_EQ(Chosen(of_name), "none");
  EXPECT_EQ(Chosen({}), "none");
}

TEST_F(PoolsTest, AnAbsentNameIsTheOneUnderWhichEveryModelIsServed) {
  EXPECT_EQ(OnlyName({}), nullptr);
  std::vector<Pool> pools = {{PoolIndex(0), "n", "a", 0}, {PoolIndex(1), "m", "a", 0}};
  EXPECT_EQ(*OnlyName(pools), "n") << "two names of one model";
  pools.push_back({PoolIndex(2), "m", "b", 0});
  EXPECT_EQ(*OnlyName(pools), "m") << "an update of one name";
  pools.push_back({PoolIndex(3), "o", "c", 0});
  EXPECT_EQ(OnlyName(pools), nullptr);
}

TEST_F(PoolsTest, FlagsAreReadOrNamedWithWhatWouldWork) {
  const auto rules = ReadPoolRules({{"x=n", "y=n"}, {"n=ab"}, {"n=ab:90,cd:10", "m=e:1"}});
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(Unaliased(*rules, "x"), "n");
  EXPECT_EQ(Unaliased(*rules, "n"), "n");
  EXPECT_EQ(rules->pins.at("n"), "ab");
  ASSERT_EQ(rules->weights.at("n").size(), 2u);
  EXPECT_EQ(rules->weights.at("n")[1].model_id, "cd");
  EXPECT_EQ(rules->weights.at("n")[1].weight, 10u);
  const std::vector<std::pair<PoolFlags, std::string>> bad = {
      {{{"x"}, {}, {}}, "--model-alias"},
      {{{"=n"}, {}, {}}, "--model-alias"},
      {{{"x=n", "x=m"}, {}, {}}, "twice"},
      {{{"x=y", "y=n"}, {}, {}}, "is an alias"},
      {{{"x=x"}, {}, {}}, "is an alias"},
      {{{}, {"n="}, {}}, "--pin-model"},
      {{{}, {"n=a", "n=b"}, {}}, "twice"},
      {{{}, {}, {"n=a"}}, "--model-weights"},
      {{{}, {}, {"n=a:x"}}, "--model-weights"},
      {{{}, {}, {"n=a:1,"}}, "--model-weights"},
      {{{}, {}, {"n=:1"}}, "--model-weights"},
      {{{}, {}, {"n=a:1000001"}}, "1000000"},
      {{{}, {}, {"n=a:-1"}}, "--model-weights"},
      {{{}, {}, {"n=a:0,b:0"}}, "all weights"},
      {{{}, {}, {"n=ab:1,abc:2"}}, "longer beginnings"},
      {{{}, {}, {"n=a:1", "n=b:1"}}, "twice"},
  };
  for (const auto& [flags, mention] : bad) {
    const auto refused = ReadPoolRules(flags);
    ASSERT_FALSE(refused.ok()) << mention;
    EXPECT_NE(StatusMessage(refused.status()).find(mention), std::string::npos) << refused.status();
  }
  EXPECT_TRUE(ReadPoolRules({{}, {}, {"n=a:1000000"}}).ok());
}

}  // namespace
}  // namespace quire
