// One record per accepted request, whichever way it ends.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

using PipelineRecordsTest = PipelineTest;

TEST_F(PipelineRecordsTest, AFinishedRequestSaysWhatItWas) {
  FakeWorkerOptions slow;
  slow.tokens_per_step = 4;
  AddWorker(slow);
  StartRouter();
  GenerateRequest ask = Ask("hi", 100);
  ask.request_id = "req-1";
  ask.streaming = true;
  ask.sampling.stop = {"ef"};  // the sixth of eight tokens that came
  TenantProfile profile;
  profile.name = "team";
  ask.tenant = std::make_shared<const TenantProfile>(profile);
  RunOne(ask, kSecond);
  ASSERT_EQ(records_.all.size(), 1u);
  const RequestRecord& record = records_.all[0];
  EXPECT_EQ(record.end, RequestEnd::kFinished);
  EXPECT_EQ(record.request_id, "req-1");
  EXPECT_EQ(record.tenant, "team");
  EXPECT_EQ(record.model, "fake");
  EXPECT_EQ(record.model_id, "model-a");
  EXPECT_TRUE(record.streaming);
  EXPECT_EQ(record.finish_reasons, std::vector<std::string>{"stop"});
  EXPECT_EQ(record.prompt_tokens, 3u);
  EXPECT_EQ(record.accepted_tokens, 8u);
  EXPECT_EQ(record.delivered_tokens, 6u);
  EXPECT_EQ(record.discarded_tokens, 2u);
  ASSERT_EQ(record.attempts.size(), 1u);
  EXPECT_EQ(record.attempts[0].end, AttemptEnd::kFinished);
  EXPECT_EQ(record.attempts[0].accepted_tokens, 8u);
  EXPECT_GE(record.queued_us, 0);
  EXPECT_GT(record.first_token_us, 0);
  EXPECT_GT(record.total_us, record.first_token_us);
  const std::string metrics = metrics_.Render();
  EXPECT_NE(metrics.find("quire_router_generation_tokens_total 6"), std::string::npos);
  EXPECT_NE(metrics.find("quire_router_discarded_tokens_total 2"), std::string::npos);
}

TEST_F(PipelineRecordsTest, ALostWorkerIsInIt) {
  AddWorker();
  AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 30), &sink);
  Run(100 * kMicrosPerMilli);
  for (const auto& worker : workers_) {
    if (!worker->attempts.empty()) {
      worker->Down();
      break;
    }
  }
  Run(5 * kSecond);
  ASSERT_EQ(records_.all.size(), 1u);
  const RequestRecord& record = records_.all[0];
  ASSERT_EQ(record.attempts.size(), 2u);
  EXPECT_EQ(record.attempts[0].end, AttemptEnd::kLost);
  EXPECT_EQ(record.attempts[1].end, AttemptEnd::kFinished);
  EXPECT_EQ(record.attempts[0].accepted_tokens + record.attempts[1].accepted_tokens, 30u);
  EXPECT_EQ(record.delivered_tokens, 30u);
  EXPECT_FALSE(record.inexact);
}

TEST_F(PipelineRecordsTest, EveryOtherEndHasOneToo) {
  FakeWorker& worker = AddWorker();
  PipelineOptions options;
  options.limits.max_live_requests = 2;
  StartRouter(options);
  GenerateRequest bad = Ask("x");
  bad.sampling.temperature = -1.0f;
  RunOne(bad, kSecond);
  ASSERT_EQ(records_.all.size(), 1u);
  EXPECT_EQ(records_.all[0].end, RequestEnd::kFailed);
  EXPECT_EQ(records_.all[0].error, ApiCode::kInvalidArgument);
  EXPECT_EQ(records_.all[0].prompt_tokens, 0u);
  EXPECT_TRUE(records_.all[0].attempts.empty());

  RecordingSink sink, second, refused;
  const RequestId id = pipeline_->Start(Ask("x", 1000), &sink);
  worker.options().max_waiting = 1;
  pipeline_->Start(Ask("x", 1000), &second);
  pipeline_->Start(Ask("x"), &refused);
  Run(105 * kMicrosPerMilli);
  EXPECT_TRUE(refused.error.has_value());
  EXPECT_EQ(records_.all.size(), 1u) << "who never came in has none";
  pipeline_->Cancel(id);
  ASSERT_EQ(records_.all.size(), 2u);
  EXPECT_EQ(records_.all[1].end, RequestEnd::kCancelled);
  EXPECT_EQ(records_.all[1].delivered_tokens, sink.ids.at(0).size());
  ASSERT_EQ(records_.all[1].attempts.size(), 1u);
  EXPECT_EQ(records_.all[1].attempts[0].end, AttemptEnd::kCancelled);

  pipeline_.reset();
  ASSERT_EQ(records_.all.size(), 3u) << "a router that leaves closes its books";
  EXPECT_EQ(records_.all[2].delivered_tokens, second.ids.at(0).size());
}

TEST_F(PipelineRecordsTest, WhatAClientBroughtAlongIsNotDeliveredAgain) {
  AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x", 10);
  ask.resume = ResumeRequest{1, 1, "model-a", {FakeIds("abcd")}};
  RecordingSink sink;
  sink.base = 4;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  EXPECT_EQ(sink.usage->completion_tokens, 10u);
  ASSERT_EQ(records_.all.size(), 1u);
  EXPECT_EQ(records_.all[0].resumed_tokens, 4u);
  EXPECT_EQ(records_.all[0].delivered_tokens, 6u);
  EXPECT_EQ(records_.all[0].accepted_tokens, 6u);
}

TEST_F(PipelineRecordsTest, OutputsOfAWorkerThatNeverSaidItAdmittedAreBookedToo) {
  AddWorker().tamper = [](pb::Step& step) { step.clear_admitted(); };
  StartRouter();
  EXPECT_TRUE(RunOne(Ask("x", 4), kSecond).usage.has_value());
  ASSERT_EQ(records_.all.size(), 1u);
  EXPECT_EQ(records_.all[0].accepted_tokens, 4u);
  EXPECT_EQ(records_.all[0].delivered_tokens, 4u);
  EXPECT_EQ(records_.all[0].prompt_tokens, 2u);
}

// Which worker, why that one, and what was foretold of its cache beside what was so.
TEST_F(PipelineRecordsTest, EachDecisionStandsInTheDebugLog) {
  AddWorker();
  StartRouter();
  logger_.SetLevel(LogLevel::kDebug);
  GenerateRequest ask = Ask("hi");
  ask.request_id = "req-1";
  RunOne(ask, kSecond);
  const auto line = std::find_if(
      logger_.lines.begin(), logger_.lines.end(),
      [](const std::string& each) { return each.starts_with("an attempt has ended"); });
  ASSERT_NE(line, logger_.lines.end());
  for (const char* said : {" request_id=req-1", " attempt=1", " worker=worker-0",
                           " chosen_for=cost", " foretold_tokens=0", " cached_tokens=0"}) {
    EXPECT_NE(line->find(said), std::string::npos) << said << " in " << *line;
  }
}

// Of all requests together, until they are tokens.
TEST_F(PipelineRecordsTest, PromptsThatWaitAtTheirLimitAreServedAndOneByteMoreIsRefused) {
  AddWorker();
  PipelineOptions options;
  options.max_waiting_prompt_bytes = 10;
  StartRouter(options);
  RecordingSink first, second, beyond, at_limit, again;
  pipeline_->Start(Ask("12345"), &first);
  pipeline_->Start(Ask("1234"), &second);
  pipeline_->Start(Ask("12"), &beyond);
  pipeline_->Start(Ask("1"), &at_limit);
  pipeline_->CheckInvariants();
  Run(10 * kSecond);
  ASSERT_TRUE(beyond.error.has_value());
  EXPECT_EQ(beyond.error->code, ApiCode::kUnavailable);
  EXPECT_GT(beyond.error->retry_after_ms, 0u);
  EXPECT_NE(metrics_.Render().find("refused_requests_total{cause=\"prompt_bytes\"} 1"),
            std::string::npos);
  for (const RecordingSink* sink : {&first, &second, &at_limit}) {
    EXPECT_TRUE(sink->usage.has_value());
  }
  pipeline_->Start(Ask("1234567890"), &again);
  Run(10 * kSecond);
  EXPECT_TRUE(again.usage.has_value()) << "nothing waits any more";
}

// The list of operators; one that is named by its id is found whatever its age.
TEST_F(PipelineRecordsTest, RunningRequestsAtTheLimitAreListedAndOfOneMoreTheYoungest) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_live_requests = kMaxRunningListed + 1;
  StartRouter(options);
  std::vector<RecordingSink> sinks(kMaxRunningListed + 1);
  const auto start = [&](size_t number) {
    GenerateRequest ask = Ask("x");
    ask.request_id = "req-" + std::to_string(number);
    pipeline_->Start(std::move(ask), &sinks[number]);
  };
  const auto ends = [&] {
    const std::vector<RunningRequest> listed = pipeline_->Running({});
    EXPECT_EQ(listed.size(), kMaxRunningListed);
    return listed.front().record.request_id + " " + listed.back().record.request_id;
  };
  const std::string last = std::to_string(kMaxRunningListed - 1);
  const std::string more = std::to_string(kMaxRunningListed);
  for (size_t number = 0; number < kMaxRunningListed; ++number) start(number);
  EXPECT_EQ(ends(), "req-" + last + " req-0");
  start(kMaxRunningListed);
  EXPECT_EQ(ends(), "req-" + more + " req-1");
  EXPECT_EQ(pipeline_->Running("req-0").size(), 1u);
  EXPECT_NE(metrics_.Render().find("quire_router_live_requests " +
                                   std::to_string(kMaxRunningListed + 1) + "\n"),
            std::string::npos)
      << "by which one sees that the list leaves some out";
  pipeline_.reset();  // the sinks go
}

TEST_F(PipelineRecordsTest, AChangeOfNumericsIsMarked) {
  for (const char* numerics : {"one", "two"}) {
    AddWorker().tamper_hello = [numerics](pb::WorkerHello& hello) {
      hello.set_numerics_id(numerics);
    };
  }
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 30), &sink);
  Run(100 * kMicrosPerMilli);
  Busy().Down();
  Run(5 * kSecond);
  ASSERT_EQ(records_.all.size(), 1u);
  EXPECT_TRUE(records_.all[0].inexact);
  EXPECT_NE(metrics_.Render().find("quire_router_inexact_requests_total 1"), std::string::npos);
}

}  // namespace
}  // namespace quire
