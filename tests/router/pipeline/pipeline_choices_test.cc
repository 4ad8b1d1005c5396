// Several choices of one request, each with its own end.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

FakeWorkerOptions SeveralChoices() {
  FakeWorkerOptions options;
  options.features = {"resume", "choices"};
  options.max_choices = 4;
  return options;
}

TEST_F(PipelineTest, AStopStringEndsOneChoiceAndTheOthersGoOn) {
  FakeWorker& worker = AddWorker(SeveralChoices());
  StartRouter();
  GenerateRequest ask = Ask("x", 10);
  ask.sampling.n = 4;
  ask.sampling.stop = {"ef"};  // choice 0 meets it at its sixth token, choice 3 at its third
  const RecordingSink sink = RunOne(ask);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.texts, (std::vector<std::string>{"abcd", "bcd", "cd", "d"}));
  EXPECT_EQ(sink.usage->completion_tokens, 6u + 5 + 4 + 3);
  EXPECT_EQ(sink.usage->prompt_tokens, 2u) << "the prompt counts once";
  std::vector<uint32_t> order;
  for (const ChoiceEnd& end : sink.ends) order.push_back(end.choice);
  EXPECT_EQ(order, (std::vector<uint32_t>{3, 2, 1, 0}));
  int finishes = 0;
  for (const pb::RouterFrame& frame : worker.heard) finishes += frame.has_finish();
  EXPECT_EQ(finishes, 4);
  ask.sampling.n = 5;
  ExpectBlamed(ask, "n");
  ExpectNothingLeft();
}

TEST_F(PipelineTest, ALostWorkersChoicesAreCarriedOnEachFromItsPlace) {
  AddWorker(SeveralChoices());
  AddWorker(SeveralChoices());
  StartRouter();
  RecordingSink sink;
  GenerateRequest ask = Ask("x", 40);
  ask.sampling.n = 4;
  ask.sampling.stop = {"ijk"};  // choices 2 and 3 are over when the worker goes
  pipeline_->Start(ask, &sink);
  while (sink.ends.size() < 2) Run(10 * kMicrosPerMilli);
  ASSERT_EQ(sink.ends.size(), 2u);
  FakeWorker& running = workers_[0]->attempts.empty() ? *workers_[1] : *workers_[0];
  FakeWorker& other = workers_[0]->attempts.empty() ? *workers_[0] : *workers_[1];
  running.Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.texts, (std::vector<std::string>{"abcdefgh", "bcdefgh", "cdefgh", "defgh"}));
  EXPECT_EQ(sink.ends.size(), 4u);
  const pb::Submit& carried = other.heard.at(1).submit();
  ASSERT_EQ(carried.choices_size(), 4);
  EXPECT_FALSE(carried.choices(0).ended() || carried.choices(1).ended());
  EXPECT_TRUE(carried.choices(2).ended() && carried.choices(3).ended());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AResumedChoiceThatWasCompleteIsToldItsEndAgain) {
  FakeWorker& worker = AddWorker(SeveralChoices());
  StartRouter();
  GenerateRequest ask = Ask("x", 6);
  ask.sampling.n = 3;
  ask.sampling.stop = {"de"};
  ask.resume = ResumeRequest{77, 1234, "model-a", {FakeIds("ab"), FakeIds("bcde"), FakeIds("cd")}};
  ask.streaming = true;
  RecordingSink sink;
  sink.base = 2;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.usage.has_value()) << sink.error->message;
  ASSERT_EQ(sink.ends.size(), 3u);
  EXPECT_EQ(sink.ends[0].choice, 1u);
  EXPECT_EQ(sink.ends[0].stop_string, "de");
  EXPECT_EQ(sink.usage->completion_tokens, 5u + 4 + 3);
  const pb::Submit& submit = worker.heard.at(1).submit();
  EXPECT_TRUE(submit.choices(1).ended());
  EXPECT_FALSE(submit.choices(0).ended() || submit.choices(2).ended());
}

TEST_F(PipelineTest, AResumedAnswerThatWasCompleteIsToldItsEndsAgain) {
  AddWorker(SeveralChoices());
  StartRouter();
  GenerateRequest ask = Ask("x", 6);
  ask.sampling.n = 3;
  ask.sampling.stop = {"de"};
  ask.resume =
      ResumeRequest{77, 1234, "model-a", {FakeIds("abcde"), FakeIds("mnopqr"), FakeIds("cdefgh")}};
  RecordingSink sink;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.usage.has_value()) << sink.error->message;
  ASSERT_EQ(sink.ends.size(), 3u);
  EXPECT_EQ(sink.ends[0].stop_string, "de");
  EXPECT_EQ(sink.ends[1].finish_reason, "length");
  EXPECT_EQ(sink.ends[2].stop_string, "de");
  EXPECT_EQ(sink.usage->completion_tokens, 5u + 6 + 3);
  EXPECT_TRUE(sink.texts.empty());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, DrainedWorkIsCarriedOnElsewhere) {
  FakeWorker& first = AddWorker();
  FakeWorker& second = AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 30), &sink);
  Run(150 * kMicrosPerMilli);
  FakeWorker& running = first.attempts.empty() ? second : first;
  pb::WorkerFrame draining;
  draining.mutable_draining()->set_remaining_ms(1000);
  running.SendFrame(draining);
  pb::Step step;
  pb::Ended* ended = step.add_ended();
  ended->set_request_number(running.attempts.begin()->first);
  ended->set_attempt(1);
  ended->set_reason(pb::DRAINED);
  ended->set_retryable(true);
  running.attempts.clear();
  running.SendStep(step);
  Run(5 * kSecond);
  EXPECT_EQ(sink.text(), "abcdefghijklmnopqrstuvwxyzabcd");
  EXPECT_EQ(pipeline_->Models().at(0).workers_ready, 1u);
}

}  // namespace
}  // namespace quire
