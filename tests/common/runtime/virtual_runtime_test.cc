#include "common/runtime/virtual_runtime.h"

#include <gtest/gtest.h>

#include "common/runtime/virtual_background.h"

namespace quire {
namespace {

class Recorder final : public FrameStream::Receiver {
 public:
  Recorder(VirtualWorld& world, std::string name) : world_(world), name_(std::move(name)) {}
  void OnFrame(std::string_view frame) override {
    frames.emplace_back(frame);
    world_.Trace(name_ + " got " + std::string(frame) + " at " +
                 std::to_string(world_.clock().Now()));
  }
  void OnClosed(const absl::Status& status) override {
    closed.push_back(status);
    world_.Trace(name_ + " closed " + std::string(absl::StatusCodeToString(status.code())));
  }
  std::vector<std::string> frames;
  std::vector<absl::Status> closed;

 private:
  VirtualWorld& world_;
  std::string name_;
};

struct Link {
  explicit Link(VirtualWorld& world) : near(world, "near"), far(world, "far") {
    world.Listen("w:1", [this](std::unique_ptr<FrameStream> stream) {
      far_stream = std::move(stream);
      far_stream->Start(&far);
    });
    dialer = world.MakeDialer();
    near_stream = dialer->Dial("w:1");
    near_stream->Start(&near);
  }
  Recorder near, far;
  std::unique_ptr<Dialer> dialer;
  std::unique_ptr<FrameStream> near_stream, far_stream;
};

TEST(VirtualWorld, RunsWorkInOrderOfTimeThenOfPosting) {
  VirtualWorld world(1);
  std::string order;
  Executor& executor = world.executor();
  const Micros now = world.clock().Now();
  executor.PostAt(now + 20, [&] { order += 'c'; });
  executor.PostAt(now + 10, [&] { order += 'a'; });
  executor.PostAt(now + 10, [&] { order += 'b'; });
  const TimerId cancelled = executor.PostAt(now + 15, [&] { order += 'x'; });
  EXPECT_TRUE(executor.Cancel(cancelled));
  EXPECT_FALSE(executor.Cancel(cancelled));
  world.RunUntil(now + 100);
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(world.clock().Now(), now + 100);
}

TEST(VirtualWorld, FramesArriveInOrderAndTheSameSeedGivesTheSameTrace) {
  auto run = [](uint64_t seed) {
    VirtualWorld world(seed);
    world.SetDelay(10, 5000);
    Link link(world);
    for (int i = 0; i < 50; ++i) link.near_stream->Write("f" + std::to_string(i));
    world.RunUntil(world.clock().Now() + kMicrosPerSecond);
    EXPECT_EQ(link.far.frames.size(), 50u);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(link.far.frames[i], "f" + std::to_string(i));
    return world.trace();
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

TEST(VirtualWorld, ACutLinkClosesBothEndsOnce) {
  VirtualWorld world(2);
  Link link(world);
  world.RunUntil(world.clock().Now() + 1000);
  world.CutLinks("w:1");
  world.CutLinks("w:1");
  link.near_stream->Write("lost");
  world.RunUntil(world.clock().Now() + kMicrosPerSecond);
  ASSERT_EQ(link.near.closed.size(), 1u);
  ASSERT_EQ(link.far.closed.size(), 1u);
  EXPECT_EQ(link.near.closed[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(link.far.frames.empty());
}

TEST(VirtualWorld, AHeldLinkDeliversLaterAndInOrder) {
  VirtualWorld world(3);
  Link link(world);
  world.RunUntil(world.clock().Now() + 1000);
  world.HoldLinks("w:1", true);
  link.near_stream->Write("a");
  link.near_stream->Write("b");
  world.RunUntil(world.clock().Now() + kMicrosPerSecond);
  EXPECT_TRUE(link.far.frames.empty());
  world.HoldLinks("w:1", false);
  world.RunUntil(world.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(link.far.frames, (std::vector<std::string>{"a", "b"}));
}

TEST(VirtualWorld, CloseFollowsWhatWasWritten) {
  VirtualWorld world(4);
  world.SetDelay(100, 3000);
  Link link(world);
  link.near_stream->Write("last words");
  link.near_stream->Close();
  world.RunUntil(world.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(link.far.frames.size(), 1u);
  ASSERT_EQ(link.far.closed.size(), 1u);
  EXPECT_TRUE(link.far.closed[0].ok());
  EXPECT_EQ(link.near.closed.size(), 1u);
}

TEST(VirtualWorld, DestroyingAnEndCancelsTheOtherAndCallsNothingBackHere) {
  VirtualWorld world(5);
  Link link(world);
  world.RunUntil(world.clock().Now() + 1000);
  link.near_stream.reset();
  world.RunUntil(world.clock().Now() + kMicrosPerSecond);
  EXPECT_TRUE(link.near.closed.empty());
  ASSERT_EQ(link.far.closed.size(), 1u);
  EXPECT_EQ(link.far.closed[0].code(), absl::StatusCode::kCancelled);
}

TEST(VirtualWorld, ADelayedCloseComesBehindWhatIsUnderWay) {
  VirtualWorld world(5);
  world.SetCloseDelay(kMicrosPerSecond, kMicrosPerSecond);
  Link link(world);
  link.near_stream->Write("last words");
  link.near_stream.reset();
  world.RunUntil(world.clock().Now() + 999'000);
  EXPECT_EQ(link.far.frames.size(), 1u);
  EXPECT_TRUE(link.far.closed.empty());
  world.RunUntil(world.clock().Now() + 2000);
  EXPECT_EQ(link.far.closed.size(), 1u);
}

TEST(VirtualWorld, NobodyListeningIsARefusedConnection) {
  VirtualWorld world(6);
  Recorder recorder(world, "near");
  auto dialer = world.MakeDialer();
  auto stream = dialer->Dial("nobody:1");
  stream->Start(&recorder);
  EXPECT_TRUE(recorder.closed.empty());
  world.RunUntil(world.clock().Now() + 1000);
  ASSERT_EQ(recorder.closed.size(), 1u);
  EXPECT_EQ(recorder.closed[0].code(), absl::StatusCode::kUnavailable);
}

TEST(VirtualWorld, BundlesAreBounded) {
  VirtualWorld world(7);
  world.ServeTextBundle("w:1", [](const std::string&) { return std::string(100, 'x'); });
  auto dialer = world.MakeDialer();
  std::vector<absl::StatusCode> codes;
  for (size_t limit : {100u, 99u}) {
    dialer->FetchTextBundle("w:1", "m", limit, [&](absl::StatusOr<std::string> bundle) {
      codes.push_back(bundle.status().code());
    });
  }
  world.RunUntil(world.clock().Now() + 1000);
  EXPECT_EQ(codes, (std::vector<absl::StatusCode>{absl::StatusCode::kOk,
                                                  absl::StatusCode::kResourceExhausted}));
}

TEST(VirtualBackground, RunsBothHalvesOnTheExecutor) {
  VirtualWorld world(8);
  VirtualBackground background(world.executor(), 500);
  std::string order;
  EXPECT_TRUE(background.Run([&] { order += "work "; }, [&] { order += "done"; }));
  EXPECT_EQ(order, "");
  world.RunUntil(world.clock().Now() + 1000);
  EXPECT_EQ(order, "work done");
}

}  // namespace
}  // namespace quire
