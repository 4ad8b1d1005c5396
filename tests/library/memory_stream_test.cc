// Streams in memory behave as connections do: in order, with a limit, and with one end that closes.
#include "library/memory_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "library/outbox.h"

namespace quire {
namespace {

class Receiver final : public FrameStream::Receiver {
 public:
  void OnFrame(std::string_view frame) override {
    frames.emplace_back(frame);
    if (on_frame) on_frame();
  }
  void OnClosed(const absl::Status& status) override { closed.push_back(status); }
  void OnWritable() override { ++writable; }

  std::vector<std::string> frames;
  std::vector<absl::Status> closed;
  int writable = 0;
  std::function<void()> on_frame;
};

class MemoryStreamTest : public testing::Test {
 protected:
  MemoryStreamTest() : streams_(MakeMemoryStreams(world_.executor())) {
    streams_.near->Start(&near_);
    streams_.far->Start(&far_);
  }
  void Settle() { world_.RunUntil(world_.clock().Now() + 1000); }

  VirtualWorld world_{1};
  Receiver near_, far_;
  MemoryStreams streams_;
};

TEST_F(MemoryStreamTest, FramesComeInOrderAndInALaterTurn) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(streams_.near->Write(std::to_string(i)));
  streams_.far->Write("back");
  EXPECT_TRUE(far_.frames.empty());
  EXPECT_EQ(streams_.near->PendingBytes(), 5u);
  Settle();
  EXPECT_EQ(far_.frames, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(near_.frames, std::vector<std::string>{"back"});
  EXPECT_EQ(streams_.near->PendingBytes(), 0u);
}

TEST_F(MemoryStreamTest, WhatIsWrittenBeforeTheFarEndStartsWaits) {
  MemoryStreams streams = MakeMemoryStreams(world_.executor());
  Receiver late;
  streams.near->Write("early");
  Settle();
  streams.far->Start(&late);
  Settle();
  EXPECT_EQ(late.frames, std::vector<std::string>{"early"});
}

TEST_F(MemoryStreamTest, TheLimitAndOneByteMore) {
  EXPECT_TRUE(streams_.near->Write(std::string(kMemoryStreamBytes, 'x')));
  EXPECT_FALSE(streams_.near->Write("y"));
  Settle();
  EXPECT_EQ(far_.frames.size(), 2u);
  EXPECT_EQ(near_.writable, 1);
  EXPECT_TRUE(streams_.near->Write("z"));
  Settle();
  EXPECT_EQ(near_.writable, 1);
}

TEST_F(MemoryStreamTest, CloseComesBehindTheFramesAndOnce) {
  streams_.near->Write("last");
  streams_.near->Close();
  streams_.near->Close();
  streams_.near->Write("too late");
  Settle();
  EXPECT_EQ(far_.frames, std::vector<std::string>{"last"});
  ASSERT_EQ(far_.closed.size(), 1u);
  EXPECT_TRUE(far_.closed[0].ok());
  ASSERT_EQ(near_.closed.size(), 1u);
  streams_.far.reset();
  Settle();
  EXPECT_EQ(near_.closed.size(), 1u);
}

TEST_F(MemoryStreamTest, AnEndThatGoesAwayCancelsTheOther) {
  streams_.far->Write("on its way");
  streams_.far.reset();
  Settle();
  EXPECT_EQ(near_.frames, std::vector<std::string>{"on its way"});
  ASSERT_EQ(near_.closed.size(), 1u);
  EXPECT_TRUE(absl::IsCancelled(near_.closed[0]));
}

TEST_F(MemoryStreamTest, AReceiverMayDestroyItsEndInACall) {
  far_.on_frame = [this] { streams_.far.reset(); };
  streams_.near->Write("a");
  streams_.near->Write("b");
  Settle();
  EXPECT_EQ(far_.frames, std::vector<std::string>{"a"});
  EXPECT_TRUE(far_.closed.empty());
  EXPECT_EQ(near_.closed.size(), 1u);
}

TEST(OutboxTest, EventsAreTakenOnceAndInOrder) {
  Outbox outbox;
  for (uint64_t i = 1; i <= 3; ++i) outbox.Push({"{}", i});
  std::vector<Event> events;
  EXPECT_TRUE(outbox.Take(std::chrono::milliseconds(0), false, events));
  ASSERT_EQ(events.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].request, i + 1);
  events.clear();
  EXPECT_TRUE(outbox.Take(std::chrono::milliseconds(0), false, events));
  EXPECT_TRUE(events.empty());
}

TEST(OutboxTest, OneTakeHasItsLimitAndTheNextTheRest) {
  Outbox outbox;
  for (uint64_t i = 1; i <= 5; ++i) outbox.Push({std::string(4u << 20, ' '), i});
  std::vector<Event> events;
  EXPECT_TRUE(outbox.Take(std::chrono::milliseconds(0), false, events));
  EXPECT_EQ(events.size(), 2u);
  events.clear();
  EXPECT_TRUE(outbox.Take(std::chrono::milliseconds(0), false, events));
  EXPECT_EQ(events.size(), 2u);
}

TEST(OutboxTest, AfterCloseNothingIsTaken) {
  Outbox outbox;
  outbox.Push({"{}", 1});
  outbox.Close();
  std::vector<Event> events;
  EXPECT_FALSE(outbox.Take(std::chrono::milliseconds(0), true, events));
  EXPECT_TRUE(events.empty());
}

}  // namespace
}  // namespace quire
