// A plan comes back from its packet as it was; damaged bytes are refused, never believed.
#include <random>

#include <gtest/gtest.h>

#include "tests/support/packet_limits.h"

namespace quire {
namespace {

StepPlan SamplePlan() {
  StepPlan plan;
  plan.number = 77;
  plan.retired = {3, 1};
  RowBirth birth;
  birth.row = 3;
  birth.sequence = 1ull << 40;
  birth.choice = 2;
  birth.adapter_slot = 2;
  birth.prompt_length = 5;
  birth.end_ids = {1, 49};
  birth.constrained = true;
  birth.sampling.temperature = 0.25f;
  birth.sampling.top_k = 7;
  birth.sampling.seed = 0xFEDCBA9876543210ull;
  birth.sampling.stop_token_ids = {1};
  birth.sampling.logit_bias = {{4, -1.5f}};
  birth.sampling.allowed_token_ids = {4, 5, 6};
  birth.sampling.bad_words = {{1, 2}, {3}};
  birth.sampling.logprobs = 3;
  plan.born.push_back(birth);
  plan.drops = {{2, 1, 4}};
  plan.appends = {{3, 0, 0, 99}, {3, 1, 0, 5}, {3, 2, 0, 6}};
  plan.copies = {{7, 8}};
  plan.rows = {{3, 0, 5, 0, 5, true}, {2, 17, 1, 5, 0, true}, {4, 9, 3, 5, 0, true, 0, 0, 2}};
  plan.tokens = {10, 11, 12, 13, 14};
  plan.drafts = {7, 8};
  return plan;
}

TEST(StepPacketTest, RoundTrip) {
  const StepPlan plan = SamplePlan();
  std::vector<std::byte> packet;
  EncodeStepPlan(plan, packet);
  StepPlan back;
  ASSERT_TRUE(DecodeStepPlan(packet, test::SmallPacketLimits(), back).ok());
  EXPECT_EQ(back.number, 77u);
  EXPECT_EQ(back.retired, plan.retired);
  ASSERT_EQ(back.born.size(), 1u);
  const RowBirth& birth = back.born[0];
  EXPECT_EQ(birth.sequence, 1ull << 40);
  EXPECT_EQ(birth.choice, 2u);
  EXPECT_EQ(birth.adapter_slot, 2);
  EXPECT_EQ(birth.prompt_length, 5);
  EXPECT_EQ(birth.end_ids, plan.born[0].end_ids);
  EXPECT_TRUE(birth.constrained);
  EXPECT_EQ(birth.sampling.seed, plan.born[0].sampling.seed);
  EXPECT_EQ(birth.sampling.temperature, 0.25f);
  EXPECT_EQ(birth.sampling.bad_words, plan.born[0].sampling.bad_words);
  EXPECT_EQ(birth.sampling.logit_bias, plan.born[0].sampling.logit_bias);
  EXPECT_EQ(birth.sampling.allowed_token_ids, plan.born[0].sampling.allowed_token_ids);
  ASSERT_EQ(back.appends.size(), 3u);
  EXPECT_EQ(back.appends[0].page, 99);
  ASSERT_EQ(back.rows.size(), 3u);
  EXPECT_EQ(back.rows[1].first_position, 17);
  EXPECT_TRUE(back.rows[1].sample);
  EXPECT_EQ(back.rows[2].draft_count, 2);
  EXPECT_EQ(back.tokens, plan.tokens);
  EXPECT_EQ(back.drafts, plan.drafts);
  std::vector<std::byte> again;
  EncodeStepPlan(back, again);
  EXPECT_EQ(again, packet);
}

TEST(StepPacketTest, EveryTruncationIsRefused) {
  std::vector<std::byte> packet;
  EncodeStepPlan(SamplePlan(), packet);
  StepPlan back;
  for (size_t size = 0; size < packet.size(); ++size) {
    EXPECT_FALSE(
        DecodeStepPlan(std::span(packet).first(size), test::SmallPacketLimits(), back).ok())
        << size;
  }
  packet.push_back(std::byte{0});
  EXPECT_FALSE(DecodeStepPlan(packet, test::SmallPacketLimits(), back).ok());
}

TEST(StepPacketTest, DamagedBytesNeverBreakTheLimits) {
  std::vector<std::byte> packet;
  EncodeStepPlan(SamplePlan(), packet);
  std::mt19937_64 rng(3);
  StepPlan back;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> damaged = packet;
    for (uint64_t flips = 1 + rng() % 3; flips > 0; --flips) {
      damaged[rng() % damaged.size()] ^= static_cast<std::byte>(1u << (rng() % 8));
    }
    if (!DecodeStepPlan(damaged, test::SmallPacketLimits(), back).ok()) continue;
    for (const StepRow& row : back.rows) {
      ASSERT_TRUE(row.row >= 0 && row.row < 8 && row.first_position + row.q_len <= 128);
    }
    for (const BlockAppend& append : back.appends) {
      ASSERT_TRUE(append.page >= 0 && append.page < 100 && append.group < 3);
    }
  }
}

TEST(StepPacketTest, BeyondTheRunnersLimitsIsRefusedByName) {
  const auto refused = [](auto spoil, std::string_view part) {
    StepPlan plan = SamplePlan();
    spoil(plan);
    std::vector<std::byte> packet;
    EncodeStepPlan(plan, packet);
    StepPlan back;
    const absl::Status status = DecodeStepPlan(packet, test::SmallPacketLimits(), back);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_NE(StatusMessage(status).find(part), std::string::npos) << status;
  };
  refused([](StepPlan& p) { p.rows[0].row = 8; }, "rows");
  refused([](StepPlan& p) { p.rows[1].row = 3; }, "stands twice");
  refused([](StepPlan& p) { p.rows[0].q_len = 0; }, "rows");
  refused([](StepPlan& p) { p.rows[0].q_len = 64; }, "tokens of the step");
  refused([](StepPlan& p) { p.rows[1].first_position = 127, p.rows[1].q_len = 2; }, "q_len");
  refused([](StepPlan& p) { p.rows[0].token_offset = 1; }, "token_offset");
  refused([](StepPlan& p) { p.tokens[0] = 50; }, "tokens");
  refused([](StepPlan& p) { p.drafts[0] = 50; }, "drafts");
  refused([](StepPlan& p) { p.drafts.push_back(1); }, "drafts (their count)");
  refused([](StepPlan& p) { p.rows[2].draft_count = 1; }, "rows.draft_count");
  refused([](StepPlan& p) { p.rows[2].draft_count = kMaxDraftTokens + 1; }, "rows");
  refused([](StepPlan& p) { p.rows[2].sample = false; }, "rows.draft_count");
  refused([](StepPlan& p) { p.tokens.push_back(1); }, "tokens");
  refused([](StepPlan& p) { p.appends[0].page = 100; }, "blocks");
  refused([](StepPlan& p) { p.appends[0].group = 3; }, "blocks");
  refused([](StepPlan& p) { p.drops[0].first_live = 40; }, "blocks");
  refused([](StepPlan& p) { p.born[0].end_ids = {5, 5}; }, "end_ids");
  refused([](StepPlan& p) { p.born[0].prompt_length = 0; }, "born");
  refused([](StepPlan& p) { p.born[0].sampling.top_p = 0.0f; }, "top_p");
  refused([](StepPlan& p) { p.retired = {8}; }, "retired");
  refused([](StepPlan& p) { p.born[0].adapter_slot = 3; }, "born");
  refused([](StepPlan& p) { p.born[0].adapter_slot = -2; }, "born");
}

}  // namespace
}  // namespace quire
