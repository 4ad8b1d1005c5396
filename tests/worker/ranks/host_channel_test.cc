// Rings and messages: whole and in order, or damage that is said; never a crash.
#include "worker/ranks/host_channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "kernels/collectives/futex.h"
#include "worker/ranks/rank_messages.h"
#include "worker/runner/step_masks.h"

namespace quire {
namespace {

int64_t Soon() { return kernels::FutexNowMicros() + 60'000'000; }

std::vector<std::byte> RandomBytes(std::mt19937& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

struct Line {
  std::unique_ptr<HostChannel> engine;
  std::unique_ptr<HostChannel> rank;
};

Line MakeLine() {
  Line line;
  line.engine = *HostChannel::Create();
  line.rank = *HostChannel::Open(dup(line.engine->fd()));
  return line;
}

TEST(HostChannel, MessagesComeWholeAndInOrderAlsoLongerThanTheRing) {
  Line line = MakeLine();
  const size_t sizes[] = {0, 1, 100, kRingBytes - 24, kRingBytes, 3 * kRingBytes + 17, 5};
  std::thread rank([&] {
    std::mt19937 random(1);
    ChannelMessage message;
    for (const size_t size : sizes) {
      ASSERT_EQ(line.rank->Receive(message, Soon()), ChannelState::kOk);
      EXPECT_EQ(message.kind, size % 7);
      EXPECT_EQ(message.bytes, RandomBytes(random, size));
      ASSERT_EQ(line.rank->Send(9, message.bytes, {}, Soon()), ChannelState::kOk);
    }
  });
  std::mt19937 random(1);
  std::mt19937 again(1);
  ChannelMessage message;
  for (const size_t size : sizes) {
    const std::vector<std::byte> bytes = RandomBytes(random, size);
    const std::span<const std::byte> all(bytes);
    ASSERT_EQ(line.engine->Send(static_cast<uint32_t>(size % 7), all.first(size / 3),
                                all.subspan(size / 3), Soon()),
              ChannelState::kOk);
    ASSERT_EQ(line.engine->Receive(message, Soon()), ChannelState::kOk);
    EXPECT_EQ(message.bytes, RandomBytes(again, size));
  }
  rank.join();
}

TEST(HostChannel, AWaitEndsWithItsTimeAndWithTheChannel) {
  Line line = MakeLine();
  ChannelMessage message;
  EXPECT_EQ(line.engine->Receive(message, kernels::FutexNowMicros() + 1000),
            ChannelState::kDeadline);
  // Who is not read from waits for room.
  const std::vector<std::byte> much(2 * kRingBytes);
  EXPECT_EQ(line.engine->Send(1, much, {}, kernels::FutexNowMicros() + 1000),
            ChannelState::kDeadline);
  std::thread rank([&] {
    while (line.rank->Receive(message, Soon()) == ChannelState::kOk) continue;
    EXPECT_EQ(line.rank->Receive(message, Soon()), ChannelState::kClosed);
  });
  line.engine->Close();
  rank.join();
  EXPECT_EQ(line.engine->Send(1, much, {}, Soon()), ChannelState::kClosed);
}

// What a rank that has gone mad leaves in the memory.
TEST(HostChannel, DamageIsSaid) {
  std::mt19937 random(2);
  int damaged = 0;
  for (int round = 0; round < 300; ++round) {
    Line line = MakeLine();
    const std::vector<std::byte> bytes = RandomBytes(random, random() % 300);
    ASSERT_EQ(line.rank->Send(3, bytes, {}, Soon()), ChannelState::kOk);
    std::string error;
    const auto memory = kernels::SharedMemory::Open(dup(line.engine->fd()), 1, error);
    ASSERT_NE(memory, nullptr) << error;
    const std::span<std::byte> results =
        memory->bytes().subspan(SharedRing::BytesNeeded(), SharedRing::BytesNeeded());
    for (int i = 0; i < 8; ++i) {
      // Its positions and bells, the message's head, or anything.
      const size_t data = SharedRing::BytesNeeded() - kRingBytes;
      const size_t at = round % 3 == 0   ? random() % data
                        : round % 3 == 1 ? data + random() % 24
                                         : random() % results.size();
      results[at] = static_cast<std::byte>(random());
    }
    ChannelMessage message;
    const ChannelState state = line.engine->Receive(message, kernels::FutexNowMicros());
    damaged += state == ChannelState::kDamaged;
    if (state == ChannelState::kOk) {
      EXPECT_EQ(message.bytes, bytes);
    }
  }
  EXPECT_GT(damaged, 100);
}

TEST(RankMessages, MasksComeBackAsTheyWereAndDamageIsSaid) {
  StepLimits limits;
  limits.max_rows = 2;
  limits.vocab_size = 50;
  const RankMasks masks{{7, 9}, {1, 2, 3, 4}};
  std::vector<std::byte> bytes;
  EncodeRankMasks(masks, bytes);
  RankMasks back;
  ASSERT_TRUE(DecodeRankMasks(bytes, limits, back).ok());
  EXPECT_EQ(back.sequences, masks.sequences);
  EXPECT_EQ(back.Of(1)[0], 3u);
  EXPECT_EQ(back.Of(1).size(), 2u);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeRankMasks(std::span(bytes).first(size), limits, back).ok()) << size;
  }
  // One for each row, and as many for their drafts as a step may have.
  const size_t most = 2 + kMaxMaskedDrafts;
  for (const size_t count : {most, most + 1}) {
    EncodeRankMasks({std::vector<uint64_t>(count, 7), std::vector<uint32_t>(2 * count)}, bytes);
    EXPECT_EQ(DecodeRankMasks(bytes, limits, back).ok(), count == most);
  }
  EncodeRankMasks(masks, bytes);
  limits = {};
  limits.max_rows = 2;
  limits.vocab_size = 65;
  EXPECT_FALSE(DecodeRankMasks(bytes, limits, back).ok()) << "masks of another vocabulary";
}

TEST(RankMessages, ResultsComeBackAsTheyWereAndDamageIsSaid) {
  const StepLimits limits = {.max_rows = 8,
                             .max_tokens = 64,
                             .max_model_len = 128,
                             .block_size = 4,
                             .groups = 3,
                             .page_count = 100,
                             .vocab_size = 50};
  RankResult result;
  result.digest = 77;
  result.full = true;
  result.step.number = 5;
  result.step.elapsed_us = 1234;
  result.device_free_bytes = 5678;
  const TokenId ids[] = {3, 4};
  const float logprobs[] = {-0.5f, -1.5f};
  SampledToken first;
  first.sequence = 9;
  first.row = 1;
  first.token = 3;
  first.logprob = -0.5f;
  first.top = result.step.AddTop({ids, logprobs});
  SampledToken second;
  second.row = 2;
  second.not_a_number = true;
  result.step.samples = {first, second};
  ScoredToken score;
  score.position = 17;
  score.logprob = -2.5f;
  score.rank = 3;
  score.top = result.step.AddTop({std::span(ids).first(1), std::span(logprobs).first(1)});
  result.step.scores = {score};
  std::vector<std::byte> bytes;
  EncodeRankResult(result, bytes);
  RankResult back;
  ASSERT_TRUE(DecodeRankResult(bytes, limits, back).ok());
  EXPECT_EQ(back.digest, 77u);
  EXPECT_EQ(back.step.number, 5u);
  EXPECT_EQ(back.device_free_bytes, 5678);
  ASSERT_EQ(back.step.samples.size(), 2u);
  const TopTokens top = back.step.Top(back.step.samples[0].top);
  EXPECT_EQ(std::vector<TokenId>(top.ids.begin(), top.ids.end()), (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(back.step.samples[1].token, -1);
  EXPECT_TRUE(back.step.samples[1].not_a_number);
  ASSERT_EQ(back.step.scores.size(), 1u);
  EXPECT_EQ(back.step.scores[0].rank, 3);
  EXPECT_EQ(ChainDigest(1, 2, back.step), ChainDigest(1, 2, result.step));
  back.step.samples[0].token = 4;
  EXPECT_NE(ChainDigest(1, 2, back.step), ChainDigest(1, 2, result.step));
  EXPECT_NE(ChainDigest(2, 2, result.step), ChainDigest(1, 2, result.step));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeRankResult(std::span(bytes).first(size), limits, back).ok()) << size;
  }
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::byte> wrong = bytes;
    for (int i = 0; i < 3; ++i) wrong[random() % wrong.size()] = static_cast<std::byte>(random());
    if (DecodeRankResult(wrong, limits, back).ok()) {
      for (const SampledToken& sample : back.step.samples) (void)back.step.Top(sample.top);
    }
    RankSetup setup;
    RankReady ready;
    (void)DecodeRankSetup(wrong, setup);
    (void)DecodeRankReady(wrong, ready);
  }
  StepLimits small = limits;
  small.max_rows = 1;
  EXPECT_FALSE(DecodeRankResult(bytes, small, back).ok());
}

}  // namespace
}  // namespace quire
