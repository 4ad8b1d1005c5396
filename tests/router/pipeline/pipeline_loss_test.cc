// What befalls workers and what the client sees of it: losses, refusals, silence, deadlines,
// resuming.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

TEST_F(PipelineTest, ALostWorkersStreamIsCarriedOnByAnother) {
  FakeWorker& first = AddWorker();
  FakeWorker& second = AddWorker();
  StartRouter();
  RecordingSink sink;
  GenerateRequest ask = Ask("x", 50);
  ask.sampling.stop = {"stop"};
  pipeline_->Start(ask, &sink);
  Run(200 * kMicrosPerMilli);
  FakeWorker& running = first.attempts.empty() ? second : first;
  FakeWorker& other = first.attempts.empty() ? first : second;
  EXPECT_GT(sink.ids.at(0).size(), 3u);
  running.Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.text(), "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx");
  EXPECT_EQ(other.heard.back().submit().attempt(), 2u);
  EXPECT_GT(other.heard.back().submit().choices(0).outputs_size(), 3);
  EXPECT_EQ(sink.usage->completion_tokens, 50u);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, WithNobodyLeftAStreamEndsInExactlyOneError) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  worker.Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable);
  EXPECT_GT(sink.error->retry_after_ms, 0u);
  EXPECT_TRUE(sink.started.has_value());
  EXPECT_FALSE(pipeline_->Ready());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, WhatIsEndedTogetherHearsOneErrorEachAndFreesItsWorker) {
  FakeWorkerOptions options;
  options.max_waiting = 1;
  FakeWorker& worker = AddWorker(options);
  StartRouter();
  std::vector<RecordingSink> sinks(8);
  for (RecordingSink& sink : sinks) pipeline_->Start(Ask("x", 1000), &sink);
  Run(100 * kMicrosPerMilli);
  RecordingSink about_to_begin;
  pipeline_->StartDraining();
  pipeline_->Start(Ask("x"), &about_to_begin);
  EXPECT_EQ(pipeline_->LiveRequests(), 9u);
  pipeline_->EndAll({ApiCode::kUnavailable, "this router is shutting down", "", 1000});
  EXPECT_EQ(pipeline_->LiveRequests(), 0u);
  for (const RecordingSink& sink : sinks) {
    ASSERT_TRUE(sink.error.has_value());
    EXPECT_EQ(sink.error->message, "this router is shutting down");
  }
  EXPECT_TRUE(about_to_begin.error.has_value());
  Run(kSecond);
  EXPECT_TRUE(worker.attempts.empty());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AWorkerThatCannotResumeLeavesTheStreamWithAnError) {
  FakeWorkerOptions options;
  options.features.clear();
  AddWorker(options);
  AddWorker(options);
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  Busy().Down();
  Run(10 * kSecond);
  EXPECT_TRUE(sink.error.has_value());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AWorkerThatGoesAwayComesBack) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  EXPECT_TRUE(pipeline_->Ready());
  worker.Down();
  Run(kSecond);
  EXPECT_FALSE(pipeline_->Ready());
  EXPECT_EQ(pipeline_->Models().at(0).workers_ready, 0u);
  const RecordingSink refused = RunOne(Ask("x"));
  EXPECT_EQ(refused.error->code, ApiCode::kUnavailable);
  worker.Up();
  Run(6 * kSecond);
  EXPECT_TRUE(pipeline_->Ready());
  EXPECT_EQ(RunOne(Ask("x")).text(), "abcde");
  EXPECT_EQ(worker.bundle_fetches, 1) << "the text is known";
}

// With the longest back-off between two tries, and however often the router has tried.
TEST_F(PipelineTest, WithAllWorkersGoneServiceIsBackWithinASecondOfOneThatIsReady) {
  AddWorker();
  AddWorker();
  StartRouter();
  for (int round = 0; round < 8; ++round) {
    for (const auto& worker : workers_) worker->Down();
    Run((5 + 3 * round) * kSecond + 130 * round * kMicrosPerMilli);
    ASSERT_TRUE(RunOne(Ask("x"), 2 * kSecond).error.has_value()) << "refused within 2 s";
    workers_[static_cast<size_t>(round) % 2]->Up();
    RecordingSink sink;
    pipeline_->Start(Ask("x"), &sink);
    Run(kSecond);
    EXPECT_EQ(sink.text(), "abcde") << round;
  }
}

TEST_F(PipelineTest, AWorkerThatCannotBeReachedIsLoggedOnceWithTheReason) {
  AddWorker().Down();
  StartRouter();
  Run(30 * kSecond);
  const auto says = [this](const std::string& what) {
    return std::count_if(logger_.lines.begin(), logger_.lines.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  EXPECT_EQ(says("connection refused"), 1);
  workers_[0]->Up();
  Run(6 * kSecond);
  EXPECT_EQ(says("phase=ready"), 1);
  workers_[0]->Down();
  Run(kSecond);
  EXPECT_EQ(says("phase=connecting"), 3) << "refused, then lost, then refused";
}

TEST_F(PipelineTest, ARequestWaitsForAWorkerThatComesBackSoon) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  worker.Down();
  Run(50 * kMicrosPerMilli);
  RecordingSink sink;
  pipeline_->Start(Ask("x"), &sink);
  Run(50 * kMicrosPerMilli);
  worker.Up();
  Run(5 * kSecond);
  EXPECT_EQ(sink.text(), "abcde");
}

TEST_F(PipelineTest, ASilentWorkerIsLeftWithinTheSilenceTime) {
  FakeWorker& first = AddWorker();
  FakeWorker& second = AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  FakeWorker& running = first.attempts.empty() ? second : first;
  running.paused = true;
  Run(1800 * kMicrosPerMilli);
  EXPECT_EQ((&running == &first ? second : first).attempts.size(), 0u) << "not yet";
  Run(10 * kSecond);
  EXPECT_EQ(sink.text(), "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx");
}

TEST_F(PipelineTest, AStuckWorkerIsLeftAndASlowOneIsNot) {
  FakeWorker& first = AddWorker();
  FakeWorker& second = AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  FakeWorker& running = first.attempts.empty() ? second : first;
  FakeWorker& other = first.attempts.empty() ? first : second;
  running.frozen = true;
  running.step_age_ms = running.step_limit_ms;  // at the limit: slow
  Run(5 * kSecond);
  EXPECT_TRUE(other.attempts.empty());
  running.step_age_ms = running.step_limit_ms + 1;
  Run(5 * kSecond);
  EXPECT_EQ(sink.text().size(), 50u);
  EXPECT_TRUE(running.attempts.empty()) << "told to stop";
}

// A worker knows prompts as token ids alone.
TEST_F(PipelineTest, APromptThatAWorkerRefusesIsBlamedInTheClientsWord) {
  AddWorker().refuse = [](const pb::Submit&, pb::Refused* refused) {
    refused->set_code(pb::TOO_LARGE);
    refused->set_field("prompt_ids");
    refused->set_message("prompt_ids: can never fit in this worker's cache");
    return true;
  };
  StartRouter();
  GenerateRequest ask = Ask("");
  ask.prompt = ChatPrompt{.messages_json = "[{}]", .tools_json = "", .template_kwargs_json = ""};
  const RecordingSink sink = RunOne(ask);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->param, "messages");
  EXPECT_EQ(sink.error->message, "messages: can never fit in this worker's cache");
}

TEST_F(PipelineTest, ARefusalIsTriedElsewhereAtMostThreeTimes) {
  int asked = 0;
  for (int i = 0; i < 6; ++i) {
    AddWorker().refuse = [&asked](const pb::Submit&, pb::Refused* refused) {
      ++asked;
      refused->set_code(pb::QUEUE_FULL);
      refused->set_retry_after_ms(2500);
      return true;
    };
  }
  StartRouter();
  const RecordingSink sink = RunOne(Ask("x"));
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable);
  EXPECT_EQ(sink.error->retry_after_ms, 2500u);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, ARefusalThatBlamesTheRequestIsFinal) {
  int asked = 0;
  for (int i = 0; i < 2; ++i) {
    AddWorker().refuse = [&asked](const pb::Submit&, pb::Refused* refused) {
      ++asked;
      refused->set_code(pb::INVALID);
      refused->set_field("prompt");
      refused->set_message("too strange");
      return true;
    };
  }
  StartRouter();
  ExpectBlamed(Ask("x"), "prompt");
  EXPECT_EQ(asked, 1);
}

TEST_F(PipelineTest, ADeadlineEndsTheRequestOnBothSides) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x", 1000);
  ask.timeout_ms = 500;
  const RecordingSink sink = RunOne(ask);
  EXPECT_EQ(sink.error->code, ApiCode::kDeadlineExceeded);
  EXPECT_GT(sink.ids.at(0).size(), 10u);
  EXPECT_LE(worker.heard.at(1).submit().remaining_ms(), 500u);
  EXPECT_GT(worker.heard.at(1).submit().remaining_ms(), 400u);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, LiveRequestsAreBounded) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_live_requests = 2;
  StartRouter(options);
  std::vector<RecordingSink> sinks(3);
  for (RecordingSink& sink : sinks) pipeline_->Start(Ask("x", 10), &sink);
  Run(5 * kSecond);
  EXPECT_TRUE(sinks[0].usage && sinks[1].usage);
  ASSERT_TRUE(sinks[2].error.has_value());
  EXPECT_EQ(sinks[2].error->code, ApiCode::kUnavailable);
  EXPECT_GT(sinks[2].error->retry_after_ms, 0u);
  EXPECT_TRUE(RunOne(Ask("x")).usage.has_value()) << "places are given back";
}

TEST_F(PipelineTest, DrainingRefusesNewRequestsAndFinishesOldOnes) {
  AddWorker();
  StartRouter();
  RecordingSink old;
  pipeline_->Start(Ask("x", 20), &old);
  Run(100 * kMicrosPerMilli);
  pipeline_->StartDraining();
  EXPECT_FALSE(pipeline_->Ready());
  EXPECT_EQ(RunOne(Ask("x")).error->code, ApiCode::kUnavailable);
  EXPECT_TRUE(old.usage.has_value());
}

TEST_F(PipelineTest, APoolThatScalesToZeroIsReadyWithoutWorkersAndItsFirstRequestWaitsForOne) {
  PipelineOptions options;
  options.ready_without_workers = true;
  options.limits.empty_pool_wait_ms = 60'000;
  FakeWorker& worker = AddWorker();
  worker.Down();
  StartRouter(options);
  EXPECT_TRUE(pipeline_->Ready()) << "else no Service sends it the request that brings a worker";
  EXPECT_FALSE(pipeline_->Healthy()) << "nothing could be answered now";
  RecordingSink sink;
  pipeline_->Start(Ask("x", 5), &sink);
  Run(20 * kSecond);
  EXPECT_FALSE(sink.usage.has_value() || sink.error.has_value());
  worker.Up();
  Run(20 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.usage->completion_tokens, 5u);
  pipeline_->StartDraining();
  EXPECT_FALSE(pipeline_->Ready());
}

TEST_F(PipelineTest, AClientThatLostItsRouterGoesOnWhereItStood) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x", 10);
  ask.resume = ResumeRequest{77, 1234, "model-a", {FakeIds("abcd")}};
  RecordingSink sink;
  sink.base = 4;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.usage.has_value()) << sink.error->message;
  EXPECT_EQ(sink.text(), "efghij");
  EXPECT_EQ(sink.started->seed, 77u);
  EXPECT_EQ(sink.started->created, 1234);
  EXPECT_EQ(worker.heard.at(1).submit().choices(0).outputs_size(), 4);
  EXPECT_EQ(worker.heard.at(1).submit().required_features(0), "resume");

  ask.resume->model_id = "model-z";
  EXPECT_EQ(RunOne(ask).error->code, ApiCode::kConflict);
  ask.resume->model_id = "model-a";
  ask.resume->outputs = {};
  ExpectBlamed(ask, "resume");
}

// All tokens came, and the router went before it said how they ended.
TEST_F(PipelineTest, AClientThatLacksOnlyTheEndIsToldItWithoutAWorker) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x", 10);
  ask.sampling.stop = {"jk"};  // its "j" is held back until the end
  ask.resume = ResumeRequest{77, 1234, "model-a", {FakeIds("abcdefghij")}};
  const size_t heard = worker.heard.size();
  RecordingSink sink;
  sink.base = 10;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.usage.has_value()) << sink.error->message;
  EXPECT_EQ(sink.text(), "j");
  EXPECT_EQ(sink.started->seed, 77u);
  ASSERT_EQ(sink.ends.size(), 1u);
  EXPECT_EQ(sink.ends[0].finish_reason, "length");
  EXPECT_EQ(sink.usage->prompt_tokens, 2u);
  EXPECT_EQ(sink.usage->completion_tokens, 10u);
  EXPECT_EQ(worker.heard.size(), heard);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
