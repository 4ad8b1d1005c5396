// Submit, its parts, and the frames about live requests: what reaches the engine and what is
// refused.
#include "tests/worker/rpc/rpc_fixture.h"

namespace quire {
namespace {

pb::RouterFrame PartFrame(uint64_t request, uint32_t index, int count, int id = 5) {
  pb::RouterFrame frame;
  pb::SubmitPart* part = frame.mutable_submit_part();
  part->set_request_number(request);
  part->set_attempt(1);
  part->set_index(index);
  for (int i = 0; i < count; ++i) part->add_prompt_ids(id);
  return frame;
}

pb::RouterFrame CancelFrame(uint64_t request) {
  pb::RouterFrame frame;
  frame.mutable_cancel()->set_request_number(request);
  frame.mutable_cancel()->set_attempt(1);
  return frame;
}

pb::RouterFrame GrantFrame(uint64_t request, uint32_t choice, uint64_t up_to) {
  pb::RouterFrame frame;
  frame.mutable_grant()->set_request_number(request);
  frame.mutable_grant()->set_attempt(1);
  frame.mutable_grant()->set_choice(choice);
  frame.mutable_grant()->set_up_to_index(up_to);
  return frame;
}

class SubmitTest : public RpcTest {
 protected:
  void SendAll(const std::vector<pb::RouterFrame>& frames) {
    for (const pb::RouterFrame& frame : frames) router->Send(frame);
    Run(kMicrosPerMilli);
  }
  // The one refusal that this Submit alone gets.
  pb::Refused RefusalOf(const pb::RouterFrame& frame) {
    const size_t before = router->Refusals().size();
    SendAll({frame});
    EXPECT_EQ(router->Refusals().size(), before + 1);
    EXPECT_FALSE(router->closed);
    EXPECT_TRUE(engine.Taken<SubmitCommand>().empty());
    return router->Refusals().empty() ? pb::Refused() : router->Refusals().back();
  }

  std::unique_ptr<BareRouter> router = Attach(1, 1);
};

TEST_F(SubmitTest, ReachesTheEngineWithItsDeadline) {
  pb::RouterFrame frame = SubmitFrameOf(10, 1);
  frame.mutable_submit()->set_remaining_ms(500);
  frame.mutable_submit()->set_initial_window(256);
  frame.mutable_submit()->set_tenant("t");
  const Micros sent = world.clock().Now();
  SendAll({frame, SubmitFrameOf(11, 2)});
  const auto submits = engine.Taken<SubmitCommand>();
  ASSERT_EQ(submits.size(), 2u);
  EXPECT_EQ(submits[0].router, RouterInstance(1));
  EXPECT_EQ(submits[0].submit.key, KeyOf(10));
  EXPECT_EQ(submits[0].submit.initial_window, 256u);
  EXPECT_EQ(submits[0].submit.tenant, "t");
  EXPECT_NEAR(static_cast<double>(submits[0].deadline_us - sent), 500e3, 1e3);
  EXPECT_EQ(submits[1].deadline_us, kNeverMicros);
}

TEST_F(SubmitTest, EachRefusalIsToldWithItsTrace) {
  std::vector<Refused> told;
  hub.SetRefusalTaker([&](RouterInstance router, const Refused& refused) {
    EXPECT_EQ(router, RouterInstance(1));
    told.push_back(refused);
  });
  const auto traced = [](uint64_t request, uint64_t number) {
    pb::RouterFrame frame = SubmitFrameOf(request, number);
    frame.mutable_submit()->set_traceparent("parent-" + std::to_string(request));
    frame.mutable_submit()->set_tracestate("a=b");
    frame.mutable_submit()->set_request_id("id-" + std::to_string(request));
    return frame;
  };
  pb::RouterFrame wrong = traced(10, 1);
  wrong.mutable_submit()->set_tenant(std::string(kMaxTenantBytes + 1, 't'));
  pb::RouterFrame foreign = traced(11, 2);
  foreign.mutable_submit()->add_required_features("no-such-thing");
  pb::RouterFrame parts = traced(12, 3);
  parts.mutable_submit()->set_parts(1);
  SendAll({wrong, foreign, parts, PartFrame(12, 0, 1, 5000)});
  engine.full = true;
  SendAll({traced(13, 4)});
  engine.full = false;
  SendAll({traced(14, 5)});
  EngineOutput output;  // and by the engine, which hands back what it was given
  output.routers.emplace_back().router = RouterInstance(1);
  output.routers[0].last_admitted_submit = 5;
  Refused by_engine{KeyOf(14), RefusalCode::kDraining, "", "this worker is leaving", 0};
  by_engine.traceparent = "parent-14";
  by_engine.tracestate = "a=b";
  by_engine.request_id = "id-14";
  output.routers[0].refused.push_back(by_engine);
  Say(std::move(output));
  ASSERT_EQ(told.size(), 5u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].traceparent, "parent-" + std::to_string(10 + i));
    EXPECT_EQ(told[i].tracestate, "a=b");
    EXPECT_EQ(told[i].request_id, "id-" + std::to_string(10 + i));
  }
  EXPECT_EQ(router->Refusals().size(), 5u);
}

TEST_F(SubmitTest, OutputsComeBackInOneStepFrame) {
  SendAll({SubmitFrameOf(10, 1)});
  EngineOutput output = Tokens(1, 10, {3, 4});
  output.routers[0].admitted.push_back({KeyOf(10), 16, 5});
  output.routers[0].last_admitted_submit = 1;
  output.load.running_rows = 1;
  output.event_seq = 9;
  Say(std::move(output));
  const pb::Step& step = router->frames.back().step();
  ASSERT_EQ(step.outputs_size(), 1);
  EXPECT_EQ(step.outputs(0).ids(1), 4);
  ASSERT_EQ(step.admitted_size(), 1);
  EXPECT_EQ(step.admitted(0).cached_tokens(), 16u);
  EXPECT_EQ(step.last_admitted_submit(), 1u);
  EXPECT_EQ(step.load().running_rows(), 1u);
  EXPECT_EQ(step.event_seq(), 9u);
  EngineOutput end;
  end.routers.emplace_back().router = RouterInstance(1);
  end.routers[0].last_admitted_submit = 1;
  Ended ended;
  ended.key = KeyOf(10);
  ended.reason = EndReason::kLength;
  ended.last_choice = true;
  ended.usage.generated_tokens = 2;
  end.routers[0].ended.push_back(ended);
  Say(std::move(end));
  ASSERT_EQ(router->Ends().size(), 1u);
  EXPECT_EQ(router->Ends()[0].reason(), pb::LENGTH);
  EXPECT_EQ(router->Ends()[0].usage().generated_tokens(), 2u);
  // Nothing is said about it any more, and frames about it no longer reach the engine.
  Say(Tokens(1, 10, {5}, 2));
  EXPECT_EQ(router->Outputs().size(), 1u);
  SendAll({CancelFrame(10), GrantFrame(10, 0, 5)});
  EXPECT_TRUE(engine.Taken<CancelCommand>().empty());
  EXPECT_TRUE(engine.Taken<GrantCommand>().empty());
}

TEST_F(SubmitTest, ControlFramesReachTheEngine) {
  pb::RouterFrame finish;
  finish.mutable_finish()->set_request_number(10);
  finish.mutable_finish()->set_attempt(1);
  finish.mutable_finish()->set_reason(pb::STOP);
  finish.mutable_finish()->set_output_count(3);
  SendAll({SubmitFrameOf(10, 1), GrantFrame(10, 0, 512), finish, CancelFrame(10)});
  ASSERT_EQ(engine.Taken<GrantCommand>().size(), 1u);
  EXPECT_EQ(engine.Taken<GrantCommand>()[0].grant.up_to_index, 512u);
  ASSERT_EQ(engine.Taken<FinishCommand>().size(), 1u);
  EXPECT_EQ(engine.Taken<FinishCommand>()[0].finish.output_count, 3u);
  EXPECT_EQ(engine.Taken<CancelCommand>().size(), 1u);
}

TEST_F(SubmitTest, AFullQueueRefusesASubmitAndEndsTheAttachForAGrant) {
  SendAll({SubmitFrameOf(9, 1)});
  engine.full = true;
  SendAll({SubmitFrameOf(10, 2)});
  ASSERT_EQ(router->Refusals().size(), 1u);
  EXPECT_EQ(router->Refusals()[0].code(), pb::QUEUE_FULL);
  EXPECT_FALSE(router->closed);
  SendAll({GrantFrame(9, 0, 10)});
  EXPECT_EQ(router->RefusedMessage(), "the engine's queue is full");
}

TEST_F(SubmitTest, RefusalsNameTheField) {
  uint64_t number = 0;
  const auto refused = [&](auto change) {
    pb::RouterFrame frame = SubmitFrameOf(100 + number, number + 1);
    ++number;
    change(*frame.mutable_submit());
    return RefusalOf(frame);
  };
  using S = pb::Submit;
  EXPECT_EQ(refused([](S& s) { s.mutable_sampling()->set_temperature(-1); }).field(),
            "temperature");
  EXPECT_EQ(refused([](S& s) { s.mutable_sampling()->set_max_tokens(-1); }).field(), "max_tokens");
  EXPECT_EQ(refused([](S& s) { s.clear_prompt_ids(); }).field(), "prompt_ids");
  EXPECT_EQ(refused([](S& s) { s.add_prompt_ids(1000); }).field(), "prompt_ids");
  EXPECT_EQ(refused([](S& s) { s.add_prompt_ids(-1); }).field(), "prompt_ids");
  EXPECT_EQ(refused([](S& s) { s.clear_choices(); }).field(), "choices");
  EXPECT_EQ(refused([](S& s) { s.set_salt(std::string(65, 's')); }).field(), "salt");
  EXPECT_EQ(refused([](S& s) { s.set_tenant(std::string(257, 't')); }).field(), "tenant");
  EXPECT_EQ(refused([](S& s) { s.set_parts(kMaxSubmitParts + 1); }).field(), "parts");
  const pb::Refused unsupported = refused([](S& s) { s.mutable_sampling()->set_logprobs(1); });
  EXPECT_EQ(unsupported.code(), pb::UNSUPPORTED);
  EXPECT_EQ(unsupported.field(), "logprobs");
  EXPECT_EQ(refused([](S& s) { s.set_adapter("lora"); }).field(), "adapter");
  EXPECT_EQ(refused([](S& s) { s.mutable_choices(0)->add_outputs(3); }).field(), "resume");
  EXPECT_EQ(refused([](S& s) { s.add_required_features("telepathy"); }).field(), "telepathy");
  EXPECT_EQ(refused([](S& s) {
              s.mutable_constraint()->set_kind(pb::Constraint::REGEX);
              s.mutable_constraint()->set_source("a+");
            }).field(),
            "constraint");
  EXPECT_EQ(refused([](S& s) { s.set_model_id("other"); }).code(), pb::WRONG_MODEL);
  EXPECT_EQ(refused([](S& s) {
              for (int i = 0; i < 2; ++i) s.add_choices();
            }).field(),
            "choices");
}

TEST_F(SubmitTest, TheSameAttemptTwiceIsADuplicate) {
  SendAll({SubmitFrameOf(10, 1), SubmitFrameOf(10, 2)});
  ASSERT_EQ(router->Refusals().size(), 1u);
  EXPECT_EQ(router->Refusals()[0].code(), pb::DUPLICATE);
  EXPECT_EQ(engine.Taken<SubmitCommand>().size(), 1u);
}

TEST_F(SubmitTest, SubmitNumbersMustGrow) {
  SendAll({SubmitFrameOf(10, 2), SubmitFrameOf(11, 2)});
  EXPECT_EQ(router->RefusedMessage(), "submit.submit_number: 2 does not follow 2");
}

TEST_F(SubmitTest, AChoiceThatDoesNotExistIsAProtocolError) {
  SendAll({SubmitFrameOf(10, 1), GrantFrame(10, 1, 5)});
  EXPECT_EQ(router->RefusedMessage(), "grant.choice: 1 does not exist");
}

TEST_F(SubmitTest, PartsAreJoinedInOrderAndOthersMayStandBetween) {
  pb::RouterFrame head = SubmitFrameOf(10, 1);
  head.mutable_submit()->set_parts(2);
  SendAll({head, PartFrame(10, 0, 3, 6), SubmitFrameOf(11, 2), GrantFrame(10, 0, 99),
           PartFrame(10, 1, 1, 7)});
  const auto submits = engine.Taken<SubmitCommand>();
  ASSERT_EQ(submits.size(), 2u);
  EXPECT_EQ(submits[0].submit.key, KeyOf(11));
  EXPECT_EQ(submits[1].submit.prompt_ids, (std::vector<TokenId>{5, 6, 6, 6, 7}));
  ASSERT_EQ(engine.Taken<GrantCommand>().size(), 1u);
  EXPECT_EQ(engine.Taken<GrantCommand>()[0].grant.up_to_index, 99u);
}

TEST_F(SubmitTest, PartsUpToTheContextAndNoFurther) {
  pb::RouterFrame head = SubmitFrameOf(10, 1);
  head.mutable_submit()->set_parts(1);
  SendAll({head, PartFrame(10, 0, 199)});  // 1 + 199 = 200
  ASSERT_EQ(engine.Taken<SubmitCommand>().size(), 1u);
  head = SubmitFrameOf(11, 2);
  head.mutable_submit()->set_parts(2);
  SendAll({head, PartFrame(11, 0, 200), PartFrame(11, 1, 1)});
  ASSERT_EQ(router->Refusals().size(), 1u);
  EXPECT_EQ(router->Refusals()[0].field(), "prompt_ids");
  EXPECT_EQ(router->Refusals()[0].message(),
            "prompt_ids: is longer than the context of 200 tokens");
  EXPECT_FALSE(router->closed);
  EXPECT_EQ(engine.Taken<SubmitCommand>().size(), 1u);
}

TEST_F(SubmitTest, ABadTokenInAPartRefusesTheRequestAlone) {
  pb::RouterFrame head = SubmitFrameOf(10, 1);
  head.mutable_submit()->set_parts(1);
  SendAll({head, PartFrame(10, 0, 1, 1000)});
  ASSERT_EQ(router->Refusals().size(), 1u);
  EXPECT_EQ(router->Refusals()[0].code(), pb::INVALID);
  EXPECT_FALSE(router->closed);
}

TEST_F(SubmitTest, PartOutOfOrderIsAProtocolError) {
  pb::RouterFrame head = SubmitFrameOf(10, 1);
  head.mutable_submit()->set_parts(2);
  SendAll({head, PartFrame(10, 1, 1)});
  EXPECT_EQ(router->RefusedMessage(), "submit_part.index: must be 0, is 1");
}

TEST_F(SubmitTest, AtMostSixteenPromptsAreAssembled) {
  for (uint64_t i = 0; i <= kMaxAssembling; ++i) {
    pb::RouterFrame head = SubmitFrameOf(10 + i, 1 + i);
    head.mutable_submit()->set_parts(1);
    SendAll({head});
    EXPECT_EQ(router->Refusals().size(), i == kMaxAssembling ? 1u : 0u);
  }
  EXPECT_EQ(router->Refusals().at(0).code(), pb::QUEUE_FULL);
  SendAll({PartFrame(10, 0, 1)});
  pb::RouterFrame head = SubmitFrameOf(99, 99);
  head.mutable_submit()->set_parts(1);
  SendAll({head});
  EXPECT_EQ(router->Refusals().size(), 1u);
}

TEST_F(SubmitTest, AsManyRequestsAsTheLimitAreTakenAndOneMoreIsRefused) {
  for (uint64_t i = 0; i < kMaxLiveAttempts; ++i) router->Send(SubmitFrameOf(10 + i, 1 + i));
  Run(kMicrosPerSecond);
  EXPECT_EQ(engine.Taken<SubmitCommand>().size(), kMaxLiveAttempts);
  EXPECT_TRUE(router->Refusals().empty());
  SendAll({SubmitFrameOf(10 + kMaxLiveAttempts, 1 + kMaxLiveAttempts)});
  ASSERT_EQ(router->Refusals().size(), 1u);
  EXPECT_EQ(router->Refusals()[0].code(), pb::QUEUE_FULL);
  EXPECT_GT(router->Refusals()[0].retry_after_ms(), 0u);
  EXPECT_FALSE(router->closed);
}

TEST_F(SubmitTest, CancelOvertakesPartsAndTheRestIsIgnored) {
  pb::RouterFrame head = SubmitFrameOf(10, 1);
  head.mutable_submit()->set_parts(2);
  SendAll({head, PartFrame(10, 0, 1), CancelFrame(10), PartFrame(10, 1, 1)});
  ASSERT_EQ(router->Ends().size(), 1u);
  EXPECT_EQ(router->Ends()[0].reason(), pb::CANCELLED);
  EXPECT_TRUE(router->Ends()[0].last_choice());
  EXPECT_TRUE(engine.Taken<SubmitCommand>().empty());
  EXPECT_FALSE(router->closed);
}

TEST_F(SubmitTest, SnapshotRequestWithoutTheFeatureIsAProtocolError) {
  pb::RouterFrame frame;
  frame.mutable_snapshot_request()->set_snapshot_number(1);
  SendAll({frame});
  EXPECT_NE(router->RefusedMessage().find("snapshot"), std::string::npos);
}

class EventsTest : public RpcTest {
 protected:
  EventsTest() : RpcTest(WithSnapshots()) {}
  static WorkerHello WithSnapshots() {
    WorkerHello hello = TestHello();
    hello.features.emplace_back("snapshot");
    return hello;
  }
  static EngineOutput Events(uint64_t first, size_t count, size_t hashes) {
    EngineOutput output;
    output.first_event_seq = first;
    output.event_seq = first + count - 1;
    for (size_t i = 0; i < count; ++i) {
      output.events.push_back(
          {CacheEvents::Kind::kStored, 0, 1, std::vector<uint64_t>(hashes, 42)});
    }
    return output;
  }
  std::unique_ptr<BareRouter> AttachForEvents(uint64_t instance) {
    auto router = Dial();
    Run(kMicrosPerMilli);
    pb::RouterFrame hello = HelloFrame(instance, 1);
    hello.mutable_hello()->set_wants_events(true);
    router->Send(hello);
    Run(kMicrosPerMilli);
    return router;
  }
};

TEST_F(EventsTest, GoToThoseWhoWantThem) {
  auto wants = AttachForEvents(1);
  auto not_wanted = Attach(2, 1);
  Say(Events(5, 2, 3));
  const pb::Step& step = wants->frames.back().step();
  ASSERT_EQ(step.events_size(), 2);
  EXPECT_EQ(step.first_event_seq(), 5u);
  EXPECT_EQ(step.event_seq(), 6u);
  EXPECT_EQ(step.events(0).hashes_size(), 3);
  EXPECT_EQ(not_wanted->frames.back().step().events_size(), 0);
}

TEST_F(EventsTest, OverflowDropsThemSaysSoAndKeepsTheAttach) {
  auto router = AttachForEvents(1);
  Say(Events(1, 1, kMaxUnsentHashes));
  EXPECT_TRUE(router->frames.back().step().events_dropped());
  EXPECT_EQ(router->frames.back().step().events_size(), 0);
  EXPECT_FALSE(router->closed);
  Say(Events(2, 1, kMaxUnsentHashes - 1));
  EXPECT_FALSE(router->frames.back().step().events_dropped());
  EXPECT_EQ(router->frames.back().step().first_event_seq(), 2u);
}

TEST_F(EventsTest, SnapshotChunksLeaveBehindTheStepMadeBeforeThem) {
  auto router = AttachForEvents(1);
  pb::RouterFrame request;
  request.mutable_snapshot_request()->set_snapshot_number(3);
  router->Send(request);
  Run(kMicrosPerMilli);
  ASSERT_EQ(engine.Taken<SnapshotCommand>().size(), 1u);
  EngineOutput output = Events(1, 1, 1);
  output.snapshot_parts.push_back({{3, 0, true, 0, {1, 2}, {0, 1}, 1}, RouterInstance(1)});
  Say(std::move(output));
  const size_t count = router->frames.size();
  ASSERT_GE(count, 2u);
  EXPECT_EQ(router->frames[count - 2].step().events_size(), 1);
  EXPECT_EQ(router->frames[count - 1].snapshot_chunk().hashes_size(), 2);
  EXPECT_TRUE(router->frames[count - 1].snapshot_chunk().last());
}

// Outputs are merged while their taker is away: the events behind a part stay behind it.
TEST_F(EventsTest, EventsAndPartsOfOneOutputLeaveInTheirOrder) {
  auto router = AttachForEvents(1);
  ASSERT_EQ(engine.Taken<WatchCommand>().size(), 1u);
  EngineOutput output = Events(1, 3, 1);
  output.snapshot_parts.push_back({{3, 0, false, 0, {1}, {0}, 2}, RouterInstance(1)});
  output.snapshot_parts.push_back({{3, 1, true, 0, {2}, {0}, 2}, RouterInstance(1)});
  const size_t before = router->frames.size();
  Say(std::move(output));
  ASSERT_EQ(router->frames.size(), before + 4);
  EXPECT_EQ(router->frames[before].step().events_size(), 2);
  EXPECT_EQ(router->frames[before].step().event_seq(), 2u);
  EXPECT_EQ(router->frames[before + 1].snapshot_chunk().index(), 0u);
  EXPECT_EQ(router->frames[before + 2].snapshot_chunk().index(), 1u);
  EXPECT_EQ(router->frames[before + 3].step().first_event_seq(), 3u);
  EXPECT_EQ(router->frames[before + 3].step().event_seq(), 3u);
  EXPECT_FALSE(router->frames[before + 3].step().events_dropped());
  // The engine hears of every part that was written, and may make as many more.
  uint32_t sent = 0;
  for (const SnapshotSentCommand& command : engine.Taken<SnapshotSentCommand>()) {
    EXPECT_EQ(command.snapshot_number, 3u);
    sent += command.parts;
  }
  EXPECT_EQ(sent, 2u);
}

TEST_F(EventsTest, NumbersWithoutEventsAreToldAsDropped) {
  auto watching = AttachForEvents(1);
  auto other = Attach(2, 1);
  Say(Events(1, 1, 1));
  EngineOutput output;
  output.event_seq = 4;  // nobody watched when they were made
  Say(std::move(output));
  EXPECT_TRUE(watching->frames.back().step().events_dropped());
  EXPECT_EQ(watching->frames.back().step().event_seq(), 4u);
  EXPECT_FALSE(other->frames.back().step().events_dropped());
  Say(Events(5, 1, 1));
  EXPECT_FALSE(watching->frames.back().step().events_dropped());
  EXPECT_EQ(watching->frames.back().step().first_event_seq(), 5u);
}

TEST_F(EventsTest, PartsThatTheEngineCouldNotHearOfAreToldLater) {
  auto router = AttachForEvents(1);
  EngineOutput output;
  output.snapshot_parts.push_back({{3, 0, true, 0, {1}, {0}, 0}, RouterInstance(1)});
  engine.full = true;
  Say(std::move(output));
  EXPECT_TRUE(engine.Taken<SnapshotSentCommand>().empty());
  engine.full = false;
  Run(2 * kPulseInterval);
  ASSERT_EQ(engine.Taken<SnapshotSentCommand>().size(), 1u);
  EXPECT_EQ(engine.Taken<SnapshotSentCommand>()[0].parts, 1u);
}

}  // namespace
}  // namespace quire
