// Attach, fencing, silence, pulse, drain: the life of a session on virtual time.
#include "tests/worker/rpc/rpc_fixture.h"

namespace quire {
namespace {

TEST_F(RpcTest, HelloIsAnsweredWithHelloAndAStep) {
  auto router = Attach(1, 1);
  ASSERT_GE(router->frames.size(), 2u);
  const pb::WorkerHello& hello = router->frames[0].hello();
  EXPECT_EQ(hello.model_id(), "model");
  EXPECT_EQ(hello.epoch(), 7u);
  EXPECT_EQ(hello.protocol(), 1u);
  EXPECT_EQ(hello.limits().max_model_len(), 200u);
  const pb::Step& step = router->frames[1].step();
  EXPECT_EQ(step.frame_seq(), 1u);
  EXPECT_EQ(step.routers_attached(), 1u);
  EXPECT_EQ(step.state(), pb::READY);
}

TEST_F(RpcTest, ProtocolWithoutOverlapIsRefusedWithTheRangeSpoken) {
  auto router = Dial();
  Run(kMicrosPerMilli);
  pb::RouterFrame frame = HelloFrame(1, 1);
  frame.mutable_hello()->set_protocol_min(2);
  frame.mutable_hello()->set_protocol_max(3);
  router->Send(frame);
  Run(kMicrosPerMilli);
  EXPECT_EQ(router->RefusedMessage(),
            "protocol 2 to 3 is not spoken here; this worker speaks 1 to 1");
  EXPECT_TRUE(router->closed);
  EXPECT_TRUE(engine.commands.empty());
}

TEST_F(RpcTest, NewerProtocolRangeThatIncludesOursIsSpoken) {
  auto router = Dial();
  Run(kMicrosPerMilli);
  pb::RouterFrame frame = HelloFrame(1, 1);
  frame.mutable_hello()->set_protocol_max(9);
  router->Send(frame);
  Run(kMicrosPerMilli);
  EXPECT_EQ(router->frames.at(0).hello().protocol(), 1u);
}

TEST_F(RpcTest, FirstFrameMustBeTheHelloAndOnlyTheFirst) {
  auto early = Dial();
  Run(kMicrosPerMilli);
  early->Heartbeat(1);
  Run(kMicrosPerMilli);
  EXPECT_EQ(early->RefusedMessage(), "the first frame must be the hello");
  auto twice = Attach(1, 1);
  twice->Send(HelloFrame(1, 2));
  Run(kMicrosPerMilli);
  EXPECT_EQ(twice->RefusedMessage(), "hello: was said twice");
  EXPECT_EQ(hub.attached_count(), 0u);
}

TEST_F(RpcTest, NewerAttachEndsTheOlder) {
  auto older = Attach(1, 1);
  older->Send(SubmitFrameOf(10, 1));
  Run(kMicrosPerMilli);
  auto newer = Attach(1, 2);
  EXPECT_TRUE(older->Refused());
  EXPECT_TRUE(older->frames.back().refused().fenced());
  EXPECT_TRUE(older->closed);
  EXPECT_FALSE(newer->closed);
  EXPECT_EQ(newer->frames.at(0).hello().model_id(), "model");
  EXPECT_EQ(hub.attached_count(), 1u);
  ASSERT_EQ(engine.Taken<RouterLostCommand>().size(), 1u);
  // What the engine still says about the older Attach's request reaches no router.
  Say(Tokens(1, 10, {3}));
  EXPECT_TRUE(newer->Outputs().empty());
  EXPECT_EQ(rpc_metrics.stale_words.value(), 1u);
}

TEST_F(RpcTest, OlderOrEqualAttachIsRefusedAlsoAfterTheNewerHasEnded) {
  auto first = Attach(1, 5);
  for (const uint64_t number : {4, 5}) {
    auto late = Attach(1, number);
    EXPECT_TRUE(late->Refused());
    EXPECT_TRUE(late->frames.back().refused().fenced());
  }
  EXPECT_FALSE(first->closed);
  first->Close();
  Run(kMicrosPerMilli);
  auto late = Attach(1, 5);
  EXPECT_TRUE(late->Refused());
  auto next = Attach(1, 6);
  EXPECT_FALSE(next->Refused());
}

TEST_F(RpcTest, RoutersDoNotFenceEachOther) {
  auto one = Attach(1, 5);
  auto two = Attach(2, 1);
  EXPECT_FALSE(one->closed);
  EXPECT_EQ(hub.attached_count(), 2u);
  EXPECT_EQ(two->frames.back().step().routers_attached(), 2u);
  EXPECT_TRUE(engine.Taken<RouterLostCommand>().empty());
}

TEST_F(RpcTest, SilentRouterIsLostAfterFiveSeconds) {
  auto router = Attach(1, 1);
  Run(4900 * kMicrosPerMilli);
  EXPECT_FALSE(router->closed);
  Run(400 * kMicrosPerMilli);
  EXPECT_TRUE(router->closed);
  EXPECT_EQ(router->RefusedMessage(), "nothing was heard from this router for 5 s");
  ASSERT_EQ(engine.Taken<RouterLostCommand>().size(), 1u);
  EXPECT_EQ(engine.Taken<RouterLostCommand>()[0].router, RouterInstance(1));
}

TEST_F(RpcTest, HeartbeatsKeepAnIdleAttach) {
  auto router = Attach(1, 1);
  RunWithHeartbeats(*router, 60 * kMicrosPerSecond);
  EXPECT_FALSE(router->closed);
}

TEST_F(RpcTest, AStreamWithoutHelloEndsAfterFiveSeconds) {
  auto router = Dial();
  Run(6 * kMicrosPerSecond);
  EXPECT_TRUE(router->closed);
}

// A clock that can jump, as time does for a process that was stopped.
class JumpingExecutor final : public Executor {
 public:
  explicit JumpingExecutor(Executor& below) : below_(below), clock_(below.clock()) {}
  void Post(std::function<void()> work) override { below_.Post(std::move(work)); }
  TimerId PostAt(Micros due, std::function<void()> work) override {
    return below_.PostAt(due - clock_.jumped, std::move(work));
  }
  bool Cancel(TimerId timer) override { return below_.Cancel(timer); }
  const Clock& clock() const override { return clock_; }
  void Jump(Micros duration) { clock_.jumped += duration; }

 private:
  struct JumpingClock final : Clock {
    explicit JumpingClock(const Clock& below) : below(below) {}
    Micros Now() const override { return below.Now() + jumped; }
    int64_t UnixSeconds() const override { return below.UnixSeconds(); }
    const Clock& below;
    Micros jumped = 0;
  };
  Executor& below_;
  JumpingClock clock_;
};

// A worker with one router, whose process can stand still.
class HeldUpProcess : public testing::Test {
 protected:
  HeldUpProcess() {
    world.Listen("worker", [this](std::unique_ptr<FrameStream> s) { hub.Accept(std::move(s)); });
    router.emplace(world, *dialer);
    world.RunUntil(world.clock().Now() + kMicrosPerMilli);
    router->Send(HelloFrame(1, 1));
    world.RunUntil(world.clock().Now() + kMicrosPerMilli);
  }

  VirtualWorld world{1};
  std::unique_ptr<Dialer> dialer = world.MakeDialer();
  JumpingExecutor executor{world.executor()};
  ScriptedEngine engine;
  NullLogger log;
  Metrics metrics;
  RpcMetrics rpc_metrics{metrics};
  AttachHub hub{TestHello(), executor, engine, log, rpc_metrics};
  std::optional<BareRouter> router;
};

TEST_F(HeldUpProcess, DoesNotCountItsOwnStandstillAsSilence) {
  executor.Jump(20 * kMicrosPerSecond);
  world.RunUntil(world.clock().Now() + 2 * kMicrosPerSecond);
  EXPECT_FALSE(router->closed);
  // Silence that this process did witness still counts.
  world.RunUntil(world.clock().Now() + 4 * kMicrosPerSecond);
  EXPECT_TRUE(router->closed);
}

TEST_F(HeldUpProcess, DoesNotCountItsOwnStandstillAsTimeOfAStep) {
  engine.pulse.running_since_us = executor.clock().Now();
  engine.pulse.running_limit_us = 2 * kMicrosPerSecond;
  executor.Jump(20 * kMicrosPerSecond);
  world.RunUntil(world.clock().Now() + 300 * kMicrosPerMilli);
  EXPECT_EQ(router->frames.back().step().state(), pb::READY);
  EXPECT_LT(router->frames.back().step().step_age_ms(), 600u);
  // The rest of its time still counts.
  world.RunUntil(world.clock().Now() + 3 * kMicrosPerSecond);
  EXPECT_EQ(router->frames.back().step().state(), pb::STUCK);
  // The next one begins at nothing.
  engine.pulse.running_since_us = executor.clock().Now();
  world.RunUntil(world.clock().Now() + 300 * kMicrosPerMilli);
  EXPECT_EQ(router->frames.back().step().state(), pb::READY);
  EXPECT_LE(router->frames.back().step().step_age_ms(), 300u);
}

TEST_F(HeldUpProcess, DoesNotCallItselfStuckInAFrameThatItSendsBeforeItsTimersRun) {
  engine.pulse.running_since_us = executor.clock().Now();
  engine.pulse.running_limit_us = 2 * kMicrosPerSecond;
  const size_t frames_before = router->frames.size();
  executor.Jump(20 * kMicrosPerSecond);
  router->Heartbeat(4711);
  world.RunUntil(world.clock().Now() + kMicrosPerMilli);
  ASSERT_GT(router->frames.size(), frames_before);
  EXPECT_EQ(router->frames.back().step().heartbeat_echo_ms(), 4711u);
  EXPECT_EQ(router->frames.back().step().state(), pb::READY);
  EXPECT_LT(router->frames.back().step().step_age_ms(), 600u);
}

TEST_F(RpcTest, AFrameLeavesEvery200MsAlsoWhileTheEngineIsStuck) {
  auto router = Attach(1, 1);
  const Micros since = world.clock().Now();
  engine.pulse.running_since_us = since;
  engine.pulse.running_limit_us = 2 * kMicrosPerSecond;
  router->times.clear();
  router->frames.clear();
  router->times.push_back(world.clock().Now());
  router->frames.emplace_back();
  RunWithHeartbeats(*router, 10 * kMicrosPerSecond);
  ASSERT_GT(router->times.size(), 50u);
  for (size_t i = 1; i < router->times.size(); ++i) {
    EXPECT_LE(router->times[i] - router->times[i - 1], 200 * kMicrosPerMilli);
    const pb::Step& step = router->frames[i].step();
    EXPECT_EQ(step.step_limit_ms(), 2000u);
    EXPECT_NEAR(static_cast<double>(step.step_age_ms()),
                static_cast<double>((router->times[i] - since) / kMicrosPerMilli), 1.0);
    if (step.step_age_ms() == 2000) continue;  // a whole millisecond holds both sides of the limit
    EXPECT_EQ(step.state(), step.step_age_ms() > 2000 ? pb::STUCK : pb::READY);
  }
  EXPECT_EQ(router->frames.back().step().state(), pb::STUCK);
}

TEST_F(RpcTest, FrameNumbersAreContiguousAndHeartbeatsAreEchoedOnce) {
  auto router = Attach(1, 1);
  router->Heartbeat(4711);
  Run(kMicrosPerSecond);
  int echoes = 0;
  uint64_t seq = 0;
  for (const pb::WorkerFrame& frame : router->frames) {
    if (!frame.has_step()) continue;
    EXPECT_EQ(frame.step().frame_seq(), ++seq);
    if (frame.step().heartbeat_echo_ms() == 4711) ++echoes;
  }
  EXPECT_EQ(echoes, 1);
}

TEST_F(RpcTest, BrokenFrameEndsTheAttachAndSaysWhy) {
  auto router = Attach(1, 1);
  router->SendBytes("\xff\xff\xff");
  Run(kMicrosPerMilli);
  EXPECT_NE(router->RefusedMessage().find("is no RouterFrame"), std::string::npos);
  EXPECT_EQ(engine.Taken<RouterLostCommand>().size(), 1u);
  EXPECT_EQ(rpc_metrics.protocol_errors.value(), 1u);
}

TEST_F(RpcTest, CutLinkIsALostRouter) {
  auto router = Attach(1, 1);
  world.CutLinks("worker");
  Run(kMicrosPerSecond);
  EXPECT_EQ(engine.Taken<RouterLostCommand>().size(), 1u);
  EXPECT_EQ(hub.attached_count(), 0u);
}

TEST_F(RpcTest, RouterLostArrivesAlsoWhenTheQueueWasFull) {
  auto router = Attach(1, 1);
  engine.full = true;
  router->Close();
  Run(kMicrosPerSecond);
  EXPECT_TRUE(engine.commands.empty());
  // The same router comes back first: its Submit must not overtake.
  auto again = Attach(1, 2);
  again->Send(SubmitFrameOf(10, 1));
  Run(kMicrosPerMilli);
  ASSERT_EQ(again->Refusals().size(), 1u);
  EXPECT_EQ(again->Refusals()[0].code(), pb::QUEUE_FULL);
  EXPECT_EQ(again->Refusals()[0].retry_after_ms(), kQueueFullRetryMs);
  engine.full = false;
  Run(kMicrosPerSecond);
  EXPECT_EQ(engine.Taken<RouterLostCommand>().size(), 1u);
  again->Send(SubmitFrameOf(11, 2));
  Run(kMicrosPerMilli);
  EXPECT_EQ(engine.Taken<SubmitCommand>().size(), 1u);
}

TEST_F(RpcTest, DrainTellsAllRoutersRefusesNewWorkAndEndsWhenTheEngineIsEmpty) {
  auto router = Attach(1, 1);
  int outcome = -1;
  hub.Drain(world.clock().Now() + 30 * kMicrosPerSecond, [&](bool clean) { outcome = clean; });
  Run(kMicrosPerMilli);
  ASSERT_TRUE(router->frames.back().has_draining());
  EXPECT_GT(router->frames.back().draining().remaining_ms(), 29000u);
  ASSERT_EQ(engine.Taken<DrainCommand>().size(), 1u);
  router->Send(SubmitFrameOf(10, 1));
  Run(kMicrosPerMilli);
  ASSERT_EQ(router->Refusals().size(), 1u);
  EXPECT_EQ(router->Refusals()[0].code(), pb::IS_DRAINING);
  EXPECT_EQ(router->frames.back().step().state(), pb::DRAIN);
  auto late = Attach(2, 1);
  ASSERT_GE(late->frames.size(), 3u);
  EXPECT_TRUE(late->frames[1].has_draining());
  EXPECT_EQ(outcome, -1);
  EngineOutput drained;
  drained.drained = true;
  Say(std::move(drained));
  EXPECT_EQ(outcome, 1);
  bool gone = false;
  hub.Close("this worker leaves", [&] { gone = true; });
  Run(kMicrosPerSecond);
  EXPECT_TRUE(gone);
  EXPECT_TRUE(router->closed);
  EXPECT_EQ(router->RefusedMessage(), "this worker leaves");
}

TEST_F(RpcTest, RoutersAreToldWhenToMoveAndTheEngineWhenToEnd) {
  auto router = Attach(1, 1);
  const Micros now = world.clock().Now();
  hub.Drain(now + 10 * kMicrosPerSecond, now + 60 * kMicrosPerSecond, [](bool) {});
  Run(kMicrosPerMilli);
  EXPECT_LE(router->frames.back().draining().remaining_ms(), 10'000u);
  ASSERT_EQ(engine.Taken<DrainCommand>().size(), 1u);
  EXPECT_EQ(engine.Taken<DrainCommand>()[0].deadline_us, now + 60 * kMicrosPerSecond);
}

TEST_F(RpcTest, DrainGivesUpOnAnEngineThatNeverEnds) {
  int outcome = -1;
  hub.Drain(world.clock().Now() + kMicrosPerSecond, [&](bool clean) { outcome = clean; });
  Run(kMicrosPerSecond + kDrainGrace - kMicrosPerMilli);
  EXPECT_EQ(outcome, -1);
  Run(2 * kMicrosPerMilli);
  EXPECT_EQ(outcome, 0);
}

TEST_F(RpcTest, MoreRoutersThanTheLimitAreRefused) {
  std::vector<std::unique_ptr<BareRouter>> routers;
  for (uint64_t i = 0; i < kMaxRouters; ++i) {
    routers.push_back(Dial());
    Run(kMicrosPerMilli / 2);
    routers.back()->Send(HelloFrame(100 + i, 1));
  }
  Run(kMicrosPerMilli);
  EXPECT_EQ(hub.attached_count(), kMaxRouters);
  auto more = Attach(9, 1);
  EXPECT_EQ(more->RefusedMessage(), "this worker has 256 routers, its limit");
}

TEST_F(RpcTest, MoreAttachesThanTheLimitAreRefusedThoughTheySayNothing) {
  std::vector<std::unique_ptr<BareRouter>> silent;
  for (size_t i = 0; i < kMaxSessions; ++i) silent.push_back(Dial());
  Run(kMicrosPerMilli);
  EXPECT_EQ(rpc_metrics.attaches_refused.value(), 0u);
  const auto more = Dial();
  Run(kMicrosPerMilli);
  EXPECT_EQ(rpc_metrics.attaches_refused.value(), 1u);
  EXPECT_EQ(more->RefusedMessage(), "this worker has too many Attaches");
  EXPECT_TRUE(more->closed);
  EXPECT_FALSE(silent.front()->closed);
}

TEST_F(RpcTest, AttachNumbersAreRememberedOfTheLatestRoutersAlone) {
  constexpr uint64_t kFirst = 1000;
  const auto comes_and_goes = [&](uint64_t router) {
    const auto one = Attach(router, 1);
    std::string refusal = one->RefusedMessage();
    one->Close();
    Run(kMicrosPerMilli);
    return refusal;
  };
  for (uint64_t i = 0; i < kMaxRememberedRouters; ++i) {
    ASSERT_EQ(comes_and_goes(kFirst + i), "") << i;
  }
  EXPECT_NE(comes_and_goes(kFirst).find("which this router has used"), std::string::npos);
  EXPECT_EQ(comes_and_goes(1), "");
  EXPECT_EQ(comes_and_goes(kFirst), "") << "the oldest is forgotten";
}

TEST_F(RpcTest, ASlowRouterEndsAtTheNamedLimitOfUnsentBytesAndNothingIsDroppedBefore) {
  auto router = Attach(1, 1);
  router->Send(SubmitFrameOf(10, 1));
  Run(kMicrosPerMilli);
  const std::vector<TokenId> ids(20000, 900);
  uint64_t index = 0;
  const auto say_more = [&] {
    Say(Tokens(1, 10, ids, index));
    index += ids.size();
  };
  // More than the stream takes at once, so that the session has to keep some itself.
  world.HoldLinks("worker", true);
  for (int i = 0; i < 112; ++i) say_more();
  world.HoldLinks("worker", false);
  Run(kMicrosPerSecond);
  uint64_t next = 0;
  for (const pb::Output& output : router->Outputs()) {
    EXPECT_EQ(output.first_index(), next);
    next += static_cast<uint64_t>(output.ids_size());
  }
  EXPECT_EQ(next, index);
  EXPECT_EQ(hub.attached_count(), 1u);
  world.HoldLinks("worker", true);
  for (int i = 0; i < 1000 && hub.attached_count() == 1; ++i) say_more();
  EXPECT_EQ(rpc_metrics.unsent_limit_hits.value(), 1u);
  EXPECT_EQ(hub.attached_count(), 0u);
}

TEST_F(RpcTest, ALostDeviceEndsEveryAttachAndComesBackWithAnotherEpoch) {
  uint64_t epochs = 100;
  hub.SetEpochSource([&] { return Epoch(++epochs); });
  auto first = Attach(1, 1);
  auto second = Attach(2, 1);
  first->Send(SubmitFrameOf(10, 1));
  Run(kMicrosPerMilli);
  Say(Tokens(1, 10, {3}));
  EngineOutput lost = Tokens(1, 10, {4}, 1);
  Ended end;
  end.key = KeyOf(10);
  end.reason = EndReason::kFailed;
  end.message = "UNAVAILABLE: gone";
  end.retryable = true;
  lost.routers[0].ended.push_back(end);
  lost.device_lost = true;
  lost.devices_lost = 1;
  lost.event_seq = 5;
  Say(lost);
  // What was said before it was lost has come; of its attempts the Attach's end tells.
  ASSERT_EQ(first->Outputs().size(), 1u);
  EXPECT_TRUE(first->Ends().empty());
  EXPECT_TRUE(first->closed);
  EXPECT_TRUE(second->closed);
  EXPECT_EQ(first->RefusedMessage(), "this worker's device was lost and is being restarted");
  EXPECT_EQ(engine.Taken<RouterLostCommand>().size(), 2u);
  auto early = Attach(1, 2);
  EXPECT_TRUE(early->Refused());
  EXPECT_FALSE(early->frames.back().refused().fenced());
  EngineOutput back;
  back.devices_lost = 1;
  Say(back);
  EXPECT_EQ(hub.epoch(), 101u);
  auto again = Attach(1, 3);
  ASSERT_FALSE(again->closed);
  EXPECT_EQ(again->frames.at(0).hello().epoch(), 101u);
  // Lost and back between two looks: told all the same.
  back.devices_lost = 2;
  Say(back);
  EXPECT_TRUE(again->closed);
  EXPECT_EQ(hub.epoch(), 102u);
}

}  // namespace
}  // namespace quire
