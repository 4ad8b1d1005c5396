// The dispatcher against played workers: exactly once, whatever they send; attempts, windows,
// waiting.
#include "router/dispatch/dispatcher.h"

#include "tests/router/dispatch/dispatcher_fixture.h"

namespace quire {
namespace {

TEST_F(DispatcherTest, DuplicatesOfTheCurrentAttemptAreDropped) {
  Start(1);
  workers_[0]->tamper = [](pb::Step& step) {
    const int count = step.outputs_size();
    for (int i = 0; i < count; ++i) {
      const pb::Output copy = step.outputs(i);
      *step.add_outputs() = copy;
    }
  };
  Ask(1);
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
  EXPECT_EQ(dispatcher_->counters().outputs_duplicate, 10u);
  EXPECT_EQ(listener_.over[1], std::vector<EndReason>{EndReason::kLength});
}

TEST_F(DispatcherTest, AGapIsMendedByTheNextAttempt) {
  Start(2);
  for (const auto& worker : workers_) {
    worker->tamper = [](pb::Step& step) {
      // The fourth token of a first attempt is lost.
      if (step.outputs_size() > 0 && step.outputs(0).first_index() == 3 &&
          step.outputs(0).attempt() == 1) {
        step.clear_outputs();
      }
    };
  }
  Ask(1);
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
  EXPECT_EQ(dispatcher_->counters().attempts_broken, 1u);
  EXPECT_EQ(dispatcher_->counters().carry_ons, 1u);
}

TEST_F(DispatcherTest, ReorderedOutputsAreNeverDelivered) {
  FakeWorkerOptions swapper;
  swapper.tokens_per_step = 1;
  Start(2, swapper);
  pb::Output kept;
  for (const auto& worker : workers_) {
    worker->tamper = [&kept](pb::Step& step) {
      if (step.outputs_size() == 0 || step.outputs(0).attempt() != 1) return;
      if (step.outputs(0).first_index() == 4) {
        kept = step.outputs(0);
        step.clear_outputs();
      } else if (step.outputs(0).first_index() == 5) {
        *step.add_outputs() = kept;  // behind its successor
      }
    };
  }
  Ask(1);
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
}

TEST_F(DispatcherTest, OutputsOfAnEarlierAttemptAreStale) {
  Start(2);
  Ask(1, 50);
  Run(100 * kMilli);
  FakeWorker& old = Running();
  FakeWorker& next = Idle();
  const uint64_t index = listener_.ids[1].size();
  old.frozen = true;
  old.step_age_ms = 5000;  // stuck: its attempt is given up
  Run(50 * kMilli);
  ASSERT_EQ(next.attempts.size(), 1u);
  // It wakes and says what fits the index exactly, for its own attempt.
  pb::Step late;
  pb::Output* output = late.add_outputs();
  output->set_request_number(1);
  output->set_attempt(1);
  output->set_first_index(listener_.ids[1].size());
  output->add_ids('!');
  old.SendStep(late);
  // And it claims the attempt that another worker has.
  late.mutable_outputs(0)->set_attempt(2);
  old.SendStep(late);
  Run(5 * kMicrosPerSecond);
  EXPECT_GE(listener_.ids[1].size(), index);
  EXPECT_EQ(TextOf(1), "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx");
  EXPECT_EQ(dispatcher_->counters().outputs_stale, 2u);
}

TEST_F(DispatcherTest, MoreThanTheWindowBreaksTheAttempt) {
  options_.limits.window_tokens = 8;
  Start(2);
  for (const auto& worker : workers_) {
    worker->tamper = [](pb::Step& step) {
      for (pb::Output& output : *step.mutable_outputs()) {
        if (output.first_index() == 7 && output.attempt() == 1) output.add_ids('!');
      }
    };
  }
  Ask(1, 20, /*router_is_taker=*/false);
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefgh") << "all eight, from the second attempt";
  EXPECT_EQ(dispatcher_->counters().attempts_broken, 1u);
}

TEST_F(DispatcherTest, MoreThanMaxTokensBreaksTheAttempt) {
  Start(2);
  for (const auto& worker : workers_) {
    worker->tamper = [](pb::Step& step) {
      for (pb::Output& output : *step.mutable_outputs()) {
        if (output.first_index() == 4 && output.attempt() == 1) output.add_ids('!');
      }
    };
  }
  Ask(1, 5);
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcde");
  EXPECT_EQ(dispatcher_->counters().attempts_broken, 1u);
}

TEST_F(DispatcherTest, AChoiceThatDoesNotExistBreaksTheAttempt) {
  Start(1);
  workers_[0]->tamper = [](pb::Step& step) {
    for (pb::Output& output : *step.mutable_outputs()) output.set_choice(1);
  };
  Ask(1);
  Run(5 * kMicrosPerSecond);
  ASSERT_EQ(listener_.failed[1].size(), 1u);
  EXPECT_EQ(listener_.failed[1][0].code, ApiCode::kInternal);
  EXPECT_TRUE(workers_[0]->attempts.empty()) << "it was told to stop";
}

TEST_F(DispatcherTest, AWorkerThatEndsAChoiceTwiceEndsItOnce) {
  Start(1);
  workers_[0]->tamper = [](pb::Step& step) {
    if (step.ended_size() == 0) return;
    const pb::Ended copy = step.ended(0);
    *step.add_ended() = copy;
  };
  Ask(1);
  Run(kMicrosPerSecond);
  EXPECT_EQ(listener_.over[1].size(), 1u);
}

TEST_F(DispatcherTest, EndsThatBlameTheRequestAreFinal) {
  struct Case {
    pb::EndReason reason;
    ApiCode code;
  };
  for (const Case& c :
       {Case{pb::FAILED, ApiCode::kInternal}, Case{pb::DEADLINE, ApiCode::kDeadlineExceeded},
        Case{pb::SLOW_CLIENT, ApiCode::kCancelled}, Case{pb::CANCELLED, ApiCode::kInternal}}) {
    workers_.clear();
    listener_ = DispatchRecorder();
    Start(2);
    for (const auto& worker : workers_) {
      worker->tamper = [&c](pb::Step& step) {
        for (pb::Ended& ended : *step.mutable_ended()) ended.set_reason(c.reason);
      };
    }
    Ask(1, 3);
    Run(kMicrosPerSecond);
    ASSERT_EQ(listener_.failed[1].size(), 1u) << c.reason;
    EXPECT_EQ(listener_.failed[1][0].code, c.code);
    EXPECT_EQ(dispatcher_->LiveRequests(), 0u);
  }
}

TEST_F(DispatcherTest, ARetryableFailureIsCarriedOn) {
  Start(2);
  int failures = 0;
  for (const auto& worker : workers_) {
    worker->tamper = [&failures](pb::Step& step) {
      if (step.outputs_size() == 0 || step.outputs(0).first_index() != 4 || failures > 0) return;
      ++failures;
      pb::Ended* ended = step.add_ended();
      ended->set_request_number(step.outputs(0).request_number());
      ended->set_attempt(step.outputs(0).attempt());
      ended->set_reason(pb::FAILED);
      ended->set_retryable(true);
    };
  }
  Ask(1);
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
  EXPECT_EQ(dispatcher_->counters().carry_ons, 1u);
}

// Workers that are lost one after the other before they say a word: nothing of it is a retry, and
// it ends.
TEST_F(DispatcherTest, CarryOnsWithoutProgressAreBounded) {
  options_.limits.max_stalled_carry_ons = 2;
  options_.limits.max_worker_deaths = 100;
  Start(4);
  for (const auto& worker : workers_) worker->frozen = true;
  Ask(1, 5000);
  for (int i = 0; i < 4; ++i) {
    Run(200 * kMilli);
    if (!listener_.failed[1].empty()) break;
    Running().CloseStream();
  }
  Run(kMicrosPerSecond);
  EXPECT_EQ(dispatcher_->counters().carry_ons, 2u);
  EXPECT_EQ(dispatcher_->counters().placement_retries, 0u);
  ASSERT_EQ(listener_.failed[1].size(), 1u);
}

TEST_F(DispatcherTest, CarryOnsThatMakeProgressAreNotBounded) {
  options_.limits.max_stalled_carry_ons = 2;
  Start(2);
  Ask(1, 150);
  for (int i = 0; i < 6; ++i) {
    Run(200 * kMilli);
    Running().CloseStream();  // the link breaks, the worker lives
  }
  Run(5 * kMicrosPerSecond);
  EXPECT_EQ(listener_.ids[1].size(), 150u);
  EXPECT_EQ(dispatcher_->counters().carry_ons, 6u);
  EXPECT_EQ(dispatcher_->counters().worker_deaths, 0u);
}

TEST_F(DispatcherTest, WithoutCarryOnALostStreamFailsAtOnce) {
  options_.carry_on = false;
  Start(2);
  Ask(1, 50);
  Run(100 * kMilli);
  Running().Down();
  Run(50 * kMilli);
  ASSERT_EQ(listener_.failed[1].size(), 1u);
  EXPECT_EQ(listener_.failed[1][0].code, ApiCode::kUnavailable);
}

TEST_F(DispatcherTest, ALossBeforeAnyOutputIsACarryOnFromNothing) {
  Start(2);
  for (const auto& worker : workers_) worker->frozen = true;
  Ask(1);
  Run(50 * kMilli);
  FakeWorker& first = Running();
  FakeWorker& second = Idle();
  second.frozen = false;
  first.Down();
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefghij");
  EXPECT_EQ(dispatcher_->counters().placement_retries, 0u) << "no refusal, no budget";
  EXPECT_EQ(dispatcher_->counters().carry_ons, 1u);
  EXPECT_EQ(second.heard.back().submit().choices(0).outputs_size(), 0);
}

TEST_F(DispatcherTest, UnansweredSubmitsKeepToTheirCredit) {
  FakeWorkerOptions small;
  small.max_waiting = 2;
  Start(1, small);
  workers_[0]->frozen = true;
  for (uint64_t i = 1; i <= 5; ++i) Ask(i);
  Run(100 * kMilli);
  EXPECT_EQ(workers_[0]->attempts.size(), 2u);
  workers_[0]->frozen = false;
  Run(kMicrosPerSecond);
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_EQ(TextOf(i), "abcdefghij") << i;
}

TEST_F(DispatcherTest, WaitingForAWorkerIsBounded) {
  Start(1);
  workers_[0]->Down();
  Run(50 * kMilli);
  Ask(1);
  EXPECT_TRUE(listener_.failed.empty()) << "never inside the call";
  Run(1400 * kMilli);
  EXPECT_TRUE(listener_.failed.empty());
  Run(200 * kMilli);
  EXPECT_EQ(listener_.failed[1].size(), 1u);
}

TEST_F(DispatcherTest, ResumedRequestsStartBehindWhatTheClientHas) {
  options_.limits.window_tokens = 8;
  Start(1);
  DispatchRequest request;
  request.number = RequestNumber(1);
  request.submit.prompt_ids = {1};
  request.submit.choices = {{FakeIds("abc"), false}};
  request.submit.sampling.max_tokens = 100;
  request.submit.model_id = "model-a";
  listener_.ids[1] = FakeIds("abc");
  dispatcher_->Start(std::move(request));
  Run(kMicrosPerSecond);
  EXPECT_EQ(TextOf(1), "abcdefghijk") << "three that it had, and a window of eight";
}

TEST_F(DispatcherTest, AWindowThatIsUsedUpSurvivesACarryOn) {
  options_.limits.window_tokens = 8;
  Start(2);
  Ask(1, 100, /*router_is_taker=*/false);
  Run(500 * kMilli);
  EXPECT_EQ(listener_.ids[1].size(), 8u);
  Running().Down();
  Run(500 * kMilli);
  // 0 would be without limit on the wire, so an attempt always gets one token.
  EXPECT_EQ(listener_.ids[1].size(), 9u);
  dispatcher_->Taken(RequestNumber(1), 0, 9);
  Run(500 * kMilli);
  EXPECT_EQ(listener_.ids[1].size(), 17u);
  Cancel(1);
}

TEST_F(DispatcherTest, TheListenerMayCancelOthersInTheSameFrame) {
  Start(1);
  Ask(1, 50);
  Ask(2, 50);
  listener_.on_output = [this](RequestNumber request, const Output&) {
    Cancel(3 - request.value());
  };
  Run(kMicrosPerSecond);
  EXPECT_EQ(listener_.ids[1].size(), 50u);
  EXPECT_EQ(listener_.ids[2].size(), 0u);
}

TEST_F(DispatcherTest, EveryAttemptIsReportedOnceWithHowItEnded) {
  Start(2);
  for (const auto& worker : workers_) {
    worker->tamper_hello = [&worker](pb::WorkerHello& hello) {
      hello.set_numerics_id("numerics of " + worker->options().worker_id);
    };
    worker->CloseStream();
  }
  Run(kMicrosPerSecond);
  Ask(1, 100);
  Run(200 * kMilli);
  const std::string first = Running().options().worker_id;
  Running().Down();
  Run(200 * kMilli);
  Cancel(1);
  const std::vector<AttemptReport>& reports = listener_.attempts[1];
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].worker_id, first);
  EXPECT_EQ(reports[0].end, AttemptEnd::kLost);
  EXPECT_FALSE(reports[0].inexact);
  EXPECT_TRUE(reports[0].admitted && reports[1].admitted);
  EXPECT_EQ(reports[0].attempt, Attempt(1));
  EXPECT_EQ(reports[0].epoch, Epoch(1));
  EXPECT_GT(reports[0].over_at, reports[0].sent_at);
  EXPECT_NE(reports[1].worker_id, first);
  EXPECT_EQ(reports[1].end, AttemptEnd::kCancelled);
  EXPECT_TRUE(reports[1].inexact) << "it went on under other numerics";
  EXPECT_EQ(reports[0].accepted_tokens + reports[1].accepted_tokens, listener_.ids[1].size());
}

TEST_F(DispatcherTest, ReportsTellRefusalsEndsAndFinishesApart) {
  Start(1);
  workers_[0]->refuse = [](const pb::Submit& submit, pb::Refused* refused) {
    refused->set_code(pb::INVALID);
    return submit.request_number() == 1;
  };
  Ask(1);
  Ask(2, 3);
  Ask(3, 100);
  Run(300 * kMilli);
  const auto last = dispatcher_->FinishChoice(RequestNumber(3), 0, EndReason::kStop, 5);
  ASSERT_EQ(listener_.attempts[1].size(), 1u);
  EXPECT_EQ(listener_.attempts[1][0].end, AttemptEnd::kRefused);
  EXPECT_FALSE(listener_.attempts[1][0].admitted);
  ASSERT_EQ(listener_.attempts[2].size(), 1u);
  EXPECT_EQ(listener_.attempts[2][0].end, AttemptEnd::kFinished);
  EXPECT_EQ(listener_.attempts[2][0].accepted_tokens, 3u);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->end, AttemptEnd::kFinished);
  EXPECT_TRUE(listener_.attempts[3].empty());
}

TEST_F(DispatcherTest, RoomIsToldAndAskedFor) {
  FakeWorkerOptions options;
  options.max_waiting = 2;
  Start(1, options);
  EXPECT_GT(listener_.rooms, 0);
  EXPECT_EQ(dispatcher_->RoomFor("model-a", {}), Room::kSome);
  EXPECT_EQ(dispatcher_->RoomFor("model-a", {{"telepathy"}, 0, 0}), Room::kUnfit);
  EXPECT_EQ(dispatcher_->RoomFor("model-b", {}), Room::kEmptyPool);
  Ask(1);
  Ask(2);
  EXPECT_EQ(dispatcher_->RoomFor("model-a", {}), Room::kFull);
  Run(kMicrosPerSecond);
  EXPECT_EQ(dispatcher_->RoomFor("model-a", {}), Room::kSome);
  workers_[0]->Down();
  Run(100 * kMilli);
  EXPECT_EQ(dispatcher_->RoomFor("model-a", {}), Room::kEmptyPool);
}

}  // namespace
}  // namespace quire
