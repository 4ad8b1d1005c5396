// One link against a played worker, on virtual time.
#include "router/link/link.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/router/support/fake_worker.h"

namespace quire {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;

class Listener final : public LinkListener {
 public:
  explicit Listener(VirtualWorld& world) : world_(world) {}
  void OnLinkUp(WorkerIndex, const WorkerHello& hello) override {
    ups.push_back(world_.clock().Now());
    last_hello = hello;
  }
  void OnStep(WorkerIndex, StepFrame& step) override { steps.push_back(step); }
  void OnDraining(WorkerIndex, uint64_t remaining_ms) override { draining_ms = remaining_ms; }
  void OnSnapshotChunk(WorkerIndex, const SnapshotChunk& chunk) override {
    chunks.push_back(chunk);
  }
  void OnLinkDown(WorkerIndex, LinkDownReason reason, const absl::Status& why) override {
    downs.push_back(world_.clock().Now());
    reasons.push_back(reason);
    last_why = StatusMessage(why);
  }
  std::vector<Micros> ups, downs;
  std::vector<LinkDownReason> reasons;
  std::vector<StepFrame> steps;
  std::vector<SnapshotChunk> chunks;
  WorkerHello last_hello;
  uint64_t draining_ms = 0;
  std::string last_why;

 private:
  VirtualWorld& world_;
};

class LinkTest : public ::testing::Test {
 protected:
  LinkTest() {
    options_.target = worker_.options().target;
    options_.router = RouterInstance(99);
  }
  void Start() {
    link_ = std::make_unique<Link>(options_, *dialer_, world_.executor(), world_.rng(), listener_);
    link_->Start();
  }
  void Run(Micros duration) { world_.RunUntil(world_.clock().Now() + duration); }
  Submit MakeSubmit(uint64_t request, size_t prompt = 3) {
    Submit submit;
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.prompt_ids = std::vector<TokenId>(prompt, 7);
    submit.choices.resize(1);
    submit.sampling.max_tokens = 5;
    return submit;
  }

  VirtualWorld world_{3};
  FakeWorker worker_{world_, {}};
  std::unique_ptr<Dialer> dialer_ = world_.MakeDialer();
  Listener listener_{world_};
  LinkOptions options_;
  std::unique_ptr<Link> link_;
};

TEST_F(LinkTest, GreetsAndComesUp) {
  Start();
  Run(100 * kMilli);
  ASSERT_TRUE(link_->up());
  const pb::RouterHello& hello = worker_.heard.at(0).hello();
  EXPECT_EQ(hello.router_instance(), 99u);
  EXPECT_EQ(hello.attach_number(), 1u);
  EXPECT_EQ(hello.protocol_min(), kProtocolMin);
  EXPECT_EQ(hello.protocol_max(), kProtocolMax);
  EXPECT_EQ(listener_.last_hello.worker_id, "worker-0");
  EXPECT_FALSE(listener_.steps.empty());
}

TEST_F(LinkTest, SendsAHeartbeatEverySecond) {
  Start();
  Run(10 * kMicrosPerSecond);
  EXPECT_GE(worker_.heartbeats, 8);
  EXPECT_LE(worker_.heartbeats, 10);
}

TEST_F(LinkTest, EveryAttachHasAHigherNumber) {
  Start();
  for (uint64_t attach = 1; attach <= 4; ++attach) {
    Run(6 * kMicrosPerSecond);
    ASSERT_TRUE(link_->up());
    EXPECT_EQ(link_->attach_number(), attach);
    worker_.CloseStream();
  }
  EXPECT_EQ(listener_.downs.size(), 3u);
}

TEST_F(LinkTest, BacksOffWithinBoundsWhileNobodyListens) {
  worker_.Down();
  Start();
  Run(60 * kMicrosPerSecond);
  ASSERT_GT(listener_.downs.size(), 10u);
  for (size_t i = 1; i < listener_.downs.size(); ++i) {
    const Micros pause = listener_.downs[i] - listener_.downs[i - 1];
    const Micros whole = std::min<Micros>(600, 100 << std::min<size_t>(i - 1, 10)) * kMilli;
    EXPECT_GE(pause, whole / 2) << i;
    EXPECT_LE(pause, whole + kMilli) << i;
  }
  EXPECT_EQ(listener_.reasons.front(), LinkDownReason::kConnectionRefused);
}

TEST_F(LinkTest, AWorkerThatHearsNothingIsLeftWithinTheSilenceTime) {
  Start();
  Run(3 * kMicrosPerSecond);
  worker_.deaf = true;
  const Micros since = world_.clock().Now();
  Run(2300 * kMilli);
  ASSERT_EQ(listener_.downs.size(), 1u);
  EXPECT_EQ(listener_.reasons[0], LinkDownReason::kSilent);
  EXPECT_GT(listener_.downs[0] - since, 700 * kMilli) << "its last word of a heartbeat is that old";
  EXPECT_LE(listener_.downs[0] - since, 2200 * kMilli);
}

TEST_F(LinkTest, AWorkerThatTellsOfNoHeartbeatsIsNotAccused) {
  worker_.echoes = false;
  Start();
  Run(3 * kMicrosPerSecond);
  worker_.deaf = true;
  Run(10 * kMicrosPerSecond);
  EXPECT_TRUE(listener_.downs.empty());
}

TEST_F(LinkTest, ASilentWorkerIsLeftAfterTheSilenceTimeAndNotBefore) {
  Start();
  Run(kMicrosPerSecond);
  worker_.paused = true;
  const Micros since = world_.clock().Now();
  Run(1990 * kMilli);
  EXPECT_TRUE(listener_.downs.empty());
  Run(300 * kMilli);
  ASSERT_EQ(listener_.downs.size(), 1u);
  EXPECT_EQ(listener_.reasons[0], LinkDownReason::kSilent);
  EXPECT_LE(listener_.downs[0] - since, 2200 * kMilli);
}

TEST_F(LinkTest, AWorkerThatNeverGreetsIsLeft) {
  worker_.tamper_hello = [](pb::WorkerHello&) {};
  world_.HoldLinks(worker_.options().target, true);
  Start();
  Run(5300 * kMilli);
  ASSERT_EQ(listener_.reasons.size(), 1u);
  EXPECT_EQ(listener_.reasons[0], LinkDownReason::kSilent);
  EXPECT_TRUE(listener_.ups.empty());
}

// An executor whose clock jumps: what a process sees that was stopped for a while.
class StoppableExecutor final : public Executor {
 public:
  explicit StoppableExecutor(Executor& inner) : inner_(inner), clock_(inner) {}
  void Post(std::function<void()> work) override { inner_.Post(std::move(work)); }
  TimerId PostAt(Micros due, std::function<void()> work) override {
    return inner_.PostAt(due - clock_.skipped, std::move(work));
  }
  bool Cancel(TimerId timer) override { return inner_.Cancel(timer); }
  const Clock& clock() const override { return clock_; }
  void Skip(Micros time) { clock_.skipped += time; }

 private:
  struct SkippingClock final : Clock {
    explicit SkippingClock(Executor& e) : executor(e) {}
    Micros Now() const override { return executor.clock().Now() + skipped; }
    int64_t UnixSeconds() const override { return executor.clock().UnixSeconds(); }
    Executor& executor;
    Micros skipped = 0;
  };
  Executor& inner_;
  SkippingClock clock_;
};

TEST_F(LinkTest, ItsOwnSleepIsNotTheWorkersSilence) {
  StoppableExecutor executor(world_.executor());
  link_ = std::make_unique<Link>(options_, *dialer_, executor, world_.rng(), listener_);
  link_->Start();
  Run(kMicrosPerSecond);
  ASSERT_TRUE(link_->up());
  worker_.paused = true;  // its frames wait in the socket while this process is stopped
  executor.Skip(10 * kMicrosPerSecond);
  Run(500 * kMilli);
  worker_.paused = false;
  Run(3 * kMicrosPerSecond);
  EXPECT_TRUE(listener_.downs.empty());
  link_.reset();  // before its executor
}

TEST_F(LinkTest, AGapInFrameNumbersEndsTheAttach) {
  Start();
  Run(kMicrosPerSecond);
  worker_.frame_seq += 1;
  Run(100 * kMilli);
  ASSERT_EQ(listener_.reasons.size(), 1u);
  EXPECT_EQ(listener_.reasons[0], LinkDownReason::kProtocol);
}

TEST_F(LinkTest, BrokenFramesEndTheAttachAndItIsTriedAgain) {
  const std::vector<std::function<void()>> crimes = {
      [this] { worker_.SendBytes("\xff\xff\xff"); },
      [this] { worker_.SendBytes(""); },
      [this] { worker_.SendBytes(std::string(kMaxFrameBytes + 1, 'x')); },
      [this] {
        pb::WorkerFrame again;
        *again.mutable_hello() = pb::WorkerHello();
        worker_.SendFrame(again);
      },
      [this] {
        pb::Step step;
        pb::Output* output = step.add_outputs();
        output->add_ids(static_cast<int32_t>(kFakeVocab));
        worker_.SendStep(step);
      },
      [this] {
        pb::WorkerFrame refused;
        refused.mutable_refused()->set_message("fenced");
        worker_.SendFrame(refused);
      },
  };
  Start();
  for (size_t i = 0; i < crimes.size(); ++i) {
    Run(6 * kMicrosPerSecond);
    ASSERT_TRUE(link_->up()) << i;
    crimes[i]();
    Run(30 * kMilli);
    EXPECT_EQ(listener_.downs.size(), i + 1);
    EXPECT_FALSE(listener_.last_why.empty());
  }
  EXPECT_EQ(listener_.reasons.back(), LinkDownReason::kRefused);
}

TEST_F(LinkTest, AnotherProtocolIsRefused) {
  worker_.tamper_hello = [](pb::WorkerHello& hello) { hello.set_protocol(kProtocolMax + 1); };
  Start();
  Run(kMicrosPerSecond);
  EXPECT_EQ(listener_.reasons.at(0), LinkDownReason::kRefused);
  EXPECT_NE(listener_.last_why.find("protocol"), std::string::npos);
}

TEST_F(LinkTest, AFirstFrameThatIsNoHelloIsRefused) {
  worker_.tamper_hello = nullptr;
  Start();
  Run(kMicrosPerSecond);
  worker_.CloseStream();
  // The next Attach hears a Step first.
  worker_.tamper_hello = [this](pb::WorkerHello&) { worker_.SendStep(pb::Step()); };
  Run(2 * kMicrosPerSecond);
  EXPECT_EQ(listener_.reasons.back(), LinkDownReason::kProtocol);
}

TEST_F(LinkTest, DrainingAndSnapshotChunksGoUp) {
  Start();
  Run(kMicrosPerSecond);
  pb::WorkerFrame draining;
  draining.mutable_draining()->set_remaining_ms(1234);
  worker_.SendFrame(draining);
  pb::WorkerFrame chunk;
  chunk.mutable_snapshot_chunk()->add_hashes(5);
  chunk.mutable_snapshot_chunk()->add_parents(4);
  worker_.SendFrame(chunk);
  Run(100 * kMilli);
  EXPECT_EQ(listener_.draining_ms, 1234u);
  ASSERT_EQ(listener_.chunks.size(), 1u);
  EXPECT_EQ(listener_.chunks[0].parents.at(0), 4u);
}

TEST_F(LinkTest, SubmitsAreNumberedPerAttach) {
  Start();
  Run(kMicrosPerSecond);
  link_->SendSubmit(MakeSubmit(1), 0);
  link_->SendSubmit(MakeSubmit(2), 0);
  Run(30 * kMilli);
  EXPECT_EQ(worker_.heard.at(1).submit().submit_number(), 1u);
  EXPECT_EQ(worker_.heard.at(2).submit().submit_number(), 2u);
  worker_.CloseStream();
  Run(kMicrosPerSecond);
  link_->SendSubmit(MakeSubmit(3), 0);
  Run(30 * kMilli);
  EXPECT_EQ(worker_.heard.back().submit().submit_number(), 1u);
}

// A stream whose buffer is full when told so: Submits wait, the rest does not.
class ClosedGate final : public Dialer {
 public:
  struct Stream final : FrameStream {
    explicit Stream(ClosedGate& gate) : gate_(gate) {}
    void Start(Receiver* receiver) override { gate_.receiver = receiver; }
    bool Write(std::string frame) override {
      pb::RouterFrame parsed;
      EXPECT_TRUE(parsed.ParseFromString(frame));
      gate_.written.push_back(parsed);
      return gate_.open;
    }
    size_t PendingBytes() const override { return 0; }
    void Close() override {}
    ClosedGate& gate_;
  };
  std::unique_ptr<FrameStream> Dial(const std::string&) override {
    return std::make_unique<Stream>(*this);
  }
  void FetchTextBundle(const std::string&, const std::string&, size_t,
                       std::function<void(absl::StatusOr<std::string>)>) override {}
  FrameStream::Receiver* receiver = nullptr;
  std::vector<pb::RouterFrame> written;
  bool open = true;
};

class GatedLinkTest : public LinkTest {
 protected:
  void Greet() {
    link_ = std::make_unique<Link>(options_, gate_, world_.executor(), world_.rng(), listener_);
    link_->Start();
    pb::WorkerFrame frame;
    pb::WorkerHello* hello = frame.mutable_hello();
    hello->set_protocol(1);
    hello->set_model_id("m");
    hello->add_served_names("m");
    hello->set_text_bundle_sha256(std::string(32, 'x'));
    hello->set_vocab_size(100);
    hello->mutable_limits()->set_max_model_len(1u << 20);
    gate_.receiver->OnFrame(frame.SerializeAsString());
    ASSERT_TRUE(link_->up());
    gate_.written.clear();
  }
  ClosedGate gate_;
};

TEST_F(GatedLinkTest, CancelAndGrantOvertakeSubmitsThatWait) {
  Greet();
  gate_.open = false;
  link_->SendSubmit(MakeSubmit(1, 3 * kMaxPromptIdsPerFrame),
                    0);  // its first frame fills the buffer
  link_->SendSubmit(MakeSubmit(2), 0);
  ASSERT_EQ(gate_.written.size(), 1u);
  link_->SendGrant({{RequestNumber(7), Attempt(1)}, 0, 10});
  link_->SendCancel({{RequestNumber(8), Attempt(1)}, false, 0});
  ASSERT_EQ(gate_.written.size(), 3u);
  EXPECT_TRUE(gate_.written[1].has_grant());
  EXPECT_TRUE(gate_.written[2].has_cancel());
  gate_.open = true;
  gate_.receiver->OnWritable();
  ASSERT_EQ(gate_.written.size(), 6u);
  EXPECT_EQ(gate_.written[3].submit_part().index(), 0u);
  EXPECT_EQ(gate_.written[4].submit_part().index(), 1u);
  EXPECT_EQ(gate_.written[5].submit().request_number(), 2u);
  EXPECT_EQ(gate_.written[5].submit().submit_number(), 2u);
}

TEST_F(GatedLinkTest, WhatConcernsAWaitingSubmitStaysBehindIt) {
  Greet();
  gate_.open = false;
  link_->SendSubmit(MakeSubmit(1, 3 * kMaxPromptIdsPerFrame), 0);
  link_->SendSubmit(MakeSubmit(2), 0);
  link_->SendSubmit(MakeSubmit(3), 0);
  EXPECT_EQ(link_->UnseenSubmits(), 3u);
  link_->SendCancel({{RequestNumber(2), Attempt(1)}, false, 0});  // never heard of
  link_->SendCancel({{RequestNumber(1), Attempt(1)}, false, 0});  // half heard of
  link_->SendGrant({{RequestNumber(3), Attempt(1)}, 0, 10});
  EXPECT_EQ(gate_.written.size(), 1u);
  EXPECT_EQ(link_->UnseenSubmits(), 2u) << "the worker will never hear of the other one";
  gate_.open = true;
  gate_.receiver->OnWritable();
  ASSERT_EQ(gate_.written.size(), 6u);
  EXPECT_EQ(gate_.written[3].cancel().request_number(), 1u);
  EXPECT_EQ(gate_.written[4].submit().request_number(), 3u);
  EXPECT_EQ(gate_.written[4].submit().submit_number(), 2u) << "without a hole";
  EXPECT_EQ(gate_.written[5].grant().request_number(), 3u);
  EXPECT_EQ(link_->WaitingSubmits(), 0u);
  EXPECT_EQ(link_->UnseenSubmits(), 2u) << "written, and still not told of";
}

}  // namespace
}  // namespace quire
