// A constraint on its way to workers, and what clients see of one that a worker cannot keep.
#include "router/pipeline/held_bytes.h"
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

FakeWorkerOptions Constraining() {
  FakeWorkerOptions options;
  options.features = {"resume", "constraint"};
  return options;
}

class PipelineConstraintTest : public PipelineTest {
 protected:
  static GenerateRequest AskFor(ConstraintKind kind, const std::string& source, int tokens = 5) {
    GenerateRequest ask = Ask("x", tokens);
    ask.constraint = {kind, source, " ?", true, true};
    ask.constraint_field = "structured_outputs.json";
    return ask;
  }
  static const pb::Submit& LastSubmit(const FakeWorker& worker) {
    for (auto it = worker.heard.rbegin(); it != worker.heard.rend(); ++it) {
      if (it->has_submit()) return it->submit();
    }
    ADD_FAILURE() << "no submit came";
    return pb::Submit::default_instance();
  }
  static void ExpectSent(const pb::Submit& submit) {
    EXPECT_EQ(submit.constraint().kind(), pb::Constraint::JSON_SCHEMA);
    EXPECT_EQ(submit.constraint().source(), kSchema);
    EXPECT_EQ(submit.constraint().whitespace_pattern(), " ?");
    EXPECT_TRUE(submit.constraint().compact() && submit.constraint().closed());
    const auto& required = submit.required_features();
    EXPECT_EQ(std::count(required.begin(), required.end(), "constraint"), 1);
  }
  static constexpr char kSchema[] = R"({"properties":{"b":{},"a":{}}})";
};

TEST_F(PipelineConstraintTest, EveryAttemptCarriesIt) {
  AddWorker(Constraining());
  AddWorker(Constraining());
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(AskFor(ConstraintKind::kJsonSchema, kSchema, 50), &sink);
  Run(200 * kMicrosPerMilli);
  FakeWorker& running = Busy();
  FakeWorker& other = &running == workers_[0].get() ? *workers_[1] : *workers_[0];
  ExpectSent(LastSubmit(running));
  running.Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(LastSubmit(other).attempt(), 2u);
  EXPECT_GT(LastSubmit(other).choices(0).outputs_size(), 3);
  ExpectSent(LastSubmit(other));
  ExpectNothingLeft();
}

TEST_F(PipelineConstraintTest, AClientThatResumesSendsItAgain) {
  FakeWorker& worker = AddWorker(Constraining());
  StartRouter();
  GenerateRequest ask = AskFor(ConstraintKind::kJsonSchema, kSchema, 10);
  ask.resume = ResumeRequest{77, 1234, "model-a", {FakeIds("abcd")}};
  RecordingSink sink;
  sink.base = 4;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(LastSubmit(worker).choices(0).outputs_size(), 4);
  ExpectSent(LastSubmit(worker));
}

TEST_F(PipelineConstraintTest, WithoutOneNothingIsSentOrRequired) {
  FakeWorker& worker = AddWorker(Constraining());
  StartRouter();
  RunOne(Ask("x"));
  EXPECT_FALSE(LastSubmit(worker).has_constraint());
  EXPECT_EQ(LastSubmit(worker).required_features_size(), 0);
}

TEST_F(PipelineConstraintTest, WorkersThatServeNoneAreNamedBeforeAnythingIsSent) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  const size_t heard = worker.heard.size();
  ExpectBlamed(AskFor(ConstraintKind::kRegex, "a"), "structured_outputs.json");
  EXPECT_EQ(worker.heard.size(), heard);
}

TEST_F(PipelineConstraintTest, ItGoesOnlyToWorkersThatServeIt) {
  AddWorker();
  FakeWorker& serves = AddWorker(Constraining());
  StartRouter();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(RunOne(AskFor(ConstraintKind::kRegex, "a")).usage);
  int submits = 0;
  for (const pb::RouterFrame& frame : serves.heard) submits += frame.has_submit();
  EXPECT_EQ(submits, 8);
}

TEST_F(PipelineConstraintTest, BeamsAreRefusedByTheClientsField) {
  FakeWorkerOptions options = Constraining();
  options.features.emplace_back("beam_search");
  AddWorker(options);
  StartRouter();
  GenerateRequest ask = AskFor(ConstraintKind::kRegex, "a");
  ask.sampling.use_beam_search = true;
  ExpectBlamed(ask, "structured_outputs.json");
}

TEST_F(PipelineConstraintTest, WhatAWorkerSaysOfItNamesTheClientsFieldAndThePathInIt) {
  FakeWorker& worker = AddWorker(Constraining());
  AddWorker(Constraining()).refuse = [](const pb::Submit&, pb::Refused*) {
    ADD_FAILURE() << "another worker cannot compile it either";
    return true;
  };
  workers_[1]->Down();
  StartRouter();
  for (const pb::RefusalCode code : {pb::INVALID, pb::TOO_LARGE, pb::UNSUPPORTED}) {
    worker.refuse = [code](const pb::Submit&, pb::Refused* refused) {
      refused->set_code(code);
      refused->set_field("constraint");
      refused->set_message("constraint: /properties/a/not: is no keyword; supported: allOf");
      return true;
    };
    const RecordingSink sink = RunOne(AskFor(ConstraintKind::kJsonSchema, kSchema));
    ASSERT_TRUE(sink.error.has_value());
    EXPECT_EQ(sink.error->code, ApiCode::kInvalidArgument);
    EXPECT_EQ(sink.error->param, "structured_outputs.json");
    EXPECT_EQ(sink.error->message,
              "structured_outputs.json: /properties/a/not: is no keyword; supported: allOf");
    EXPECT_FALSE(sink.started.has_value());
  }
}

TEST_F(PipelineConstraintTest, AnAnswerThatCannotGoOnEndsInTheClientsError) {
  FakeWorker& worker = AddWorker(Constraining());
  StartRouter();
  int steps = 0;
  worker.tamper = [&](pb::Step& step) {
    if (step.outputs_size() == 0 || ++steps != 3) return;
    const pb::Output output = step.outputs(0);
    step.clear_outputs();
    pb::Ended* ended = step.add_ended();
    ended->set_request_number(output.request_number());
    ended->set_attempt(output.attempt());
    ended->set_reason(pb::FAILED);
    ended->set_message("constraint: allowed_token_ids leave no token that it allows");
    ended->set_last_choice(true);
  };
  const RecordingSink sink = RunOne(AskFor(ConstraintKind::kJsonSchema, kSchema));
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kInvalidArgument);
  EXPECT_EQ(sink.error->param, "structured_outputs.json");
  EXPECT_EQ(sink.error->message,
            "structured_outputs.json: allowed_token_ids leave no token that it allows");
  EXPECT_EQ(sink.ids.at(0).size(), 2u);
}

// Whatever ignore_eos and min_tokens say: a worker ends the answer there.
TEST_F(PipelineConstraintTest, TheEndOfSequenceThatMeetsItIsNoText) {
  FakeWorkerOptions options = Constraining();
  options.features.emplace_back("min_tokens");
  AddWorker(options);
  text_->mutable_generation().eos_token_ids = {'d'};
  StartRouter();
  for (const bool constrained : {true, false}) {
    GenerateRequest ask = AskFor(ConstraintKind::kRegex, "abc", 4);
    if (!constrained) ask.constraint = {};
    ask.sampling.ignore_eos = true;
    ask.sampling.min_tokens = 4;
    const RecordingSink sink = RunOne(ask);
    ASSERT_TRUE(sink.usage.has_value());
    EXPECT_EQ(sink.text(), constrained ? "abc" : "abcd");
    EXPECT_EQ(sink.usage->completion_tokens, 4u);
  }
}

TEST_F(PipelineConstraintTest, ItsBytesAreChargedForEachCopy) {
  GenerateRequest ask = Ask("x");
  const size_t bare = HeldBytes(ask);
  ask.constraint.kind = ConstraintKind::kRegex;
  ask.constraint.source = std::string(kMaxConstraintBytes, 'a');
  EXPECT_GE(HeldBytes(ask), bare + 4 * kMaxConstraintBytes);
  FakeWorkerOptions options = Constraining();
  AddWorker(options).frozen = true;
  PipelineOptions router;
  router.memory = std::make_shared<MemoryAccount>(size_t{512} << 10);
  StartRouter(router);
  RecordingSink sink;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable);
}

}  // namespace
}  // namespace quire
