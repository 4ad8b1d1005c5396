// Requests with adapters: whose answers they get, whose blocks they share, what is refused and
// counted.
#include <gtest/gtest.h>

#include "common/runtime/virtual_runtime.h"
#include "common/wire/features.h"
#include "tests/worker/engine/engine_harness.h"
#include "worker/engine/adapter_metrics.h"

namespace quire::test {
namespace {

class AdaptersTest : public testing::Test {
 protected:
  AdaptersTest() { options_.engine.adapters = &table_; }

  Submit AskFor(const Harness& harness, uint64_t request, const std::string& adapter) const {
    std::mt19937_64 same(5);
    std::vector<TokenId> prompt(41);
    for (TokenId& id : prompt) id = static_cast<TokenId>(same() % 60);
    Submit submit = harness.MakeSubmit(request, std::move(prompt), 12);
    submit.sampling.seed = 1;
    submit.sampling.ignore_eos = true;
    submit.adapter = adapter;
    return submit;
  }

  const AdapterTable table_ = TagAdapterTable(1);
  HarnessOptions options_ = SmallEngine();
  const std::vector<std::string> all_ = {"", TagAdapterDigest(0), TagAdapterDigest(1)};
};

TEST_F(AdaptersTest, EachGetsItsOwnAnswerWhateverIsBesideIt) {
  std::vector<std::vector<TokenId>> alone;
  for (const std::string& adapter : all_) {
    Harness harness(options_);
    harness.Send(AskFor(harness, 1, adapter));
    harness.RunFor(0);
    ASSERT_EQ(harness.answer(1).tokens.size(), 12u);
    alone.push_back(harness.answer(1).tokens);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[1], alone[2]);
  Harness harness(options_);
  for (uint64_t request = 1; request <= 9; ++request) {
    harness.Send(AskFor(harness, request, all_[request % 3]));
  }
  harness.RunFor(0);
  for (uint64_t request = 1; request <= 9; ++request) {
    EXPECT_EQ(harness.answer(request).tokens, alone[request % 3]) << request;
  }
  harness.ExpectBooksBalance();
  ASSERT_EQ(harness.records.size(), 9u);
  for (const AttemptRecord& record : harness.records) {
    EXPECT_EQ(record.adapter, all_[record.key.request.value() % 3]);
  }
}

TEST_F(AdaptersTest, BlocksAreSharedUnderTheSameDigestAlone) {
  Harness harness(options_);
  for (uint64_t request = 1; request <= 6; ++request) {
    harness.Send(AskFor(harness, request, all_[request % 3]));
    harness.RunFor(0);
    const uint32_t cached = harness.answer(request).admission.cached_tokens;
    EXPECT_EQ(cached, request <= 3 ? 0u : 40u) << request;
  }
}

TEST_F(AdaptersTest, ChoicesAndBeamsHaveTheirRequests) {
  options_.engine.max_choices = 3;
  std::vector<std::vector<TokenId>> seen;
  for (const std::string& adapter : all_) {
    Harness harness(options_);
    Submit several = AskFor(harness, 1, adapter);
    several.choices.resize(3);
    harness.Send(several);
    Submit beams = AskFor(harness, 2, adapter);
    beams.sampling = {};
    beams.sampling.max_tokens = 8;
    beams.sampling.ignore_eos = true;
    beams.sampling.beam_width = 3;
    harness.Send(beams);
    harness.RunFor(0);
    Harness one(options_);
    one.Send(AskFor(one, 1, adapter));
    one.RunFor(0);
    EXPECT_EQ(harness.answer(1).tokens, one.answer(1).tokens);
    seen.push_back(harness.answer(1).of(2));
    seen.push_back(harness.answer(2).tokens);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_FALSE(seen[i].empty());
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]) << i << " " << j;
  }
}

TEST_F(AdaptersTest, AnUnknownDigestIsRefusedAndMayBeServedElsewhere) {
  Harness harness(options_);
  harness.Send(AskFor(harness, 1, std::string(64, 'f')));
  harness.RunFor(0);
  ASSERT_EQ(harness.answer(1).refused.size(), 1u);
  const Refused& refused = harness.answer(1).refused[0];
  EXPECT_EQ(refused.code, RefusalCode::kNotReady);
  EXPECT_EQ(refused.field, "adapter");
  EXPECT_EQ(refused.message, "adapter: this worker does not hold it");
  const std::vector<std::string> features = ServedFeatures(options_.engine);
  EXPECT_TRUE(std::count(features.begin(), features.end(), kFeatureAdapter) == 1);
  const std::vector<std::string> plain = ServedFeatures(SmallEngine().engine);
  EXPECT_TRUE(std::count(plain.begin(), plain.end(), kFeatureAdapter) == 0);
}

TEST_F(AdaptersTest, TheMetricsNameThoseInUse) {
  VirtualWorld world(1);
  Metrics metrics;
  AdapterMetrics of_adapters(table_, world.clock(), metrics);
  options_.engine.adapter_metrics = &of_adapters;
  options_.engine.max_num_seqs = 1;
  options_.step_micros = [](int64_t) { return 1000; };
  Harness harness(options_);
  const std::string info = "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"";
  EXPECT_NE(metrics.Render().find(info + "\",waiting_lora_adapters=\"\"}"), std::string::npos)
      << metrics.Render();
  EXPECT_NE(metrics.Render().find("quire_worker_lora_adapters 2\n"), std::string::npos);
  harness.Send(AskFor(harness, 1, all_[1]));
  harness.Send(AskFor(harness, 2, all_[2]));
  harness.RunFor(500);
  const std::string text = metrics.Render();
  EXPECT_NE(text.find(info + "first\",waiting_lora_adapters=\"second\"}"), std::string::npos)
      << text;
  EXPECT_EQ(text.find(info + "\",waiting_lora_adapters=\"\"}"), std::string::npos)
      << "one series at a time";
  harness.RunFor(1'000'000);
  EXPECT_NE(metrics.Render().find(info + "\",waiting_lora_adapters=\"\"}"), std::string::npos);
}

class AdapterSlotsInUse : public AdaptersTest {
 protected:
  AdapterPlaced Place(Harness& harness, const std::string& digest,
                      const std::vector<std::string>& kept = {},
                      const std::vector<std::string>& named = {}) {
    const auto weights = std::make_shared<TagAdapterWeights>(TagAdapterSalt(digest));
    harness.Apply(AdapterCommand{++number_, digest, weights, kept, named});
    const std::vector<AdapterPlaced> placed = harness.Once().adapters;
    EXPECT_EQ(placed.size(), 1u);
    if (placed.size() != 1) return {};
    EXPECT_EQ(placed[0].number, number_);
    return placed[0];
  }
  std::vector<TokenId> Alone(const std::string& adapter) {
    Harness harness(options_);
    harness.Send(AskFor(harness, 1, adapter));
    harness.RunFor(0);
    return harness.answer(1).tokens;
  }

  const std::string other_ = std::string(64, 'x');
  uint64_t number_ = 0;
};

TEST_F(AdapterSlotsInUse, AnotherAdapterTakesTheSlotThatNothingUses) {
  const std::vector<TokenId> alone = Alone(all_[1]);
  Harness harness(options_);
  harness.Send(AskFor(harness, 1, all_[1]));
  harness.Once();
  EXPECT_EQ(Place(harness, other_, {all_[2]}).slot, -1) << "one is in use, one is kept";
  const AdapterPlaced placed = Place(harness, other_);
  EXPECT_EQ(placed.evicted, all_[2]);
  EXPECT_GE(placed.slot, 0);
  harness.Send(AskFor(harness, 2, all_[2]));
  harness.Send(AskFor(harness, 3, other_));
  EXPECT_EQ(Place(harness, all_[2]).slot, -1) << "both are in use";
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(1).tokens, alone) << "a running answer keeps its adapter";
  ASSERT_EQ(harness.answer(2).refused.size(), 1u);
  EXPECT_EQ(harness.answer(2).refused[0].code, RefusalCode::kNotReady);
  EXPECT_EQ(harness.answer(3).tokens.size(), 12u);
  EXPECT_NE(harness.answer(3).tokens, alone);
  // Now both are idle: the one that was asked for first gives way.
  harness.now_us += 1000;
  harness.Send(AskFor(harness, 5, other_));
  harness.RunFor(0);
  EXPECT_EQ(Place(harness, all_[2]).evicted, all_[1]);
  harness.Send(AskFor(harness, 4, all_[2]));
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(4).tokens, Alone(all_[2])) << "another slot, the same answer";
  harness.ExpectBooksBalance();
}

TEST_F(AdapterSlotsInUse, WhatHasNoNameGoesFirstAndWhatIsHeldStays) {
  Harness harness(options_);
  EXPECT_EQ(Place(harness, all_[1]).evicted, "") << "it is held";
  // The first was touched last, and has no name any more.
  EXPECT_EQ(Place(harness, other_, {}, {all_[2]}).evicted, all_[1]);
}

TEST_F(AdapterSlotsInUse, AWaitingRequestAndAPausedOneKeepTheirSlot) {
  options_.engine.max_num_seqs = 1;
  Harness harness(options_);
  Submit paused = AskFor(harness, 1, all_[1]);
  paused.initial_window = 3;
  harness.Send(paused);
  harness.RunFor(0);
  harness.Send(AskFor(harness, 2, all_[2]));
  EXPECT_EQ(Place(harness, other_).slot, -1);
  harness.Cancel(1);
  harness.now_us += 1000;
  harness.RunFor(0);
  EXPECT_EQ(harness.answer(2).tokens, Alone(all_[2]));
  EXPECT_EQ(Place(harness, other_).evicted, all_[1]);
}

}  // namespace
}  // namespace quire::test
