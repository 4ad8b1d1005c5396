// A client's prediction on its way to workers, and what becomes of it in the usage.
#include "router/pipeline/held_bytes.h"
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

FakeWorkerOptions DraftingWorker() {
  FakeWorkerOptions options;
  options.features = {"resume", "prediction"};
  return options;
}

// Tells with every output of an attempt that two drafts were right and one was not.
void TellDrafts(FakeWorker& worker) {
  worker.tamper = [](pb::Step& step) {
    for (pb::Output& output : *step.mutable_outputs()) {
      output.set_accepted_prediction_tokens(2);
      output.set_rejected_prediction_tokens(1);
    }
  };
}

GenerateRequest Predicting(const std::string& prediction, int max_tokens = 5) {
  GenerateRequest ask;
  ask.prompt = TextPrompt{"hello", false};
  ask.sampling.max_tokens = max_tokens;
  ask.prediction = prediction;
  return ask;
}

std::string PredictionOf(const pb::RouterFrame& frame) {
  std::string text;
  for (const int id : frame.submit().prediction_ids()) text.push_back(static_cast<char>(id));
  return text;
}

class PredictionPipelineTest : public PipelineTest {
 protected:
  // The Submits that a worker heard.
  static std::vector<pb::RouterFrame> Submits(const FakeWorker& worker) {
    std::vector<pb::RouterFrame> submits;
    for (const pb::RouterFrame& frame : worker.heard) {
      if (frame.has_submit()) submits.push_back(frame);
    }
    return submits;
  }
};

TEST_F(PredictionPipelineTest, ItsTokensGoToWorkersThatDraftFromThem) {
  FakeWorker& worker = AddWorker(DraftingWorker());
  StartRouter();
  const RecordingSink sink = RunOne(Predicting("abc"));
  EXPECT_EQ(sink.text(), "abcde");
  ASSERT_EQ(Submits(worker).size(), 1u);
  EXPECT_EQ(PredictionOf(Submits(worker)[0]), "abc") << "and no token that begins a sequence";
  EXPECT_EQ(Submits(worker)[0].submit().required_features_size(), 0) << "no worker needs it";
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_TRUE(sink.usage->has_prediction);
  EXPECT_EQ(sink.usage->accepted_prediction_tokens, 0u);
  const RecordingSink without = RunOne(Ask("hello"));
  EXPECT_FALSE(without.usage->has_prediction);
  EXPECT_EQ(Submits(worker)[1].submit().prediction_ids_size(), 0);
  ExpectNothingLeft();
}

// An old worker would refuse a field that it does not know.
TEST_F(PredictionPipelineTest, OtherWorkersNeverHearOfIt) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  const int encodes = text_->encodes;
  const RecordingSink sink = RunOne(Predicting("abc"));
  EXPECT_EQ(sink.text(), "abcde");
  EXPECT_EQ(text_->encodes, encodes + 1) << "the prompt alone is tokenised";
  EXPECT_EQ(PredictionOf(Submits(worker).at(0)), "");
  EXPECT_TRUE(sink.usage->has_prediction);
  ExpectNothingLeft();
}

TEST_F(PredictionPipelineTest, WhatTheContextHasNoRoomForIsCut) {
  FakeWorkerOptions options = DraftingWorker();
  options.max_model_len = 32;
  FakeWorker& worker = AddWorker(options);
  StartRouter();
  for (const size_t longest : {size_t{0}, size_t{1}}) {
    text_->longest_token_bytes = longest;  // whether it is known how few tokens a text has
    for (const size_t bytes : {size_t{27}, size_t{28}, size_t{1000}}) {
      EXPECT_TRUE(RunOne(Predicting(std::string(bytes, 'p'))).usage.has_value());
      EXPECT_EQ(PredictionOf(Submits(worker).back()),
                std::string(std::min<size_t>(bytes, 27), 'p'));
    }
  }
  ExpectNothingLeft();
}

TEST_F(PredictionPipelineTest, AtTheLimitOfTextsServedAndOneByteMoreRefused) {
  AddWorker(DraftingWorker());
  PipelineOptions options;
  options.limits.max_prompt_bytes = 100;
  StartRouter(options);
  EXPECT_TRUE(RunOne(Predicting(std::string(100, 'p'))).usage.has_value());
  const RecordingSink refused = RunOne(Predicting(std::string(101, 'p')));
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->code, ApiCode::kTooLarge);
  EXPECT_EQ(refused.error->param, "prediction");
  ExpectBlamed(Predicting("\xff"), "prediction");
  ExpectNothingLeft();
}

// Each attempt has it whole, and the usage is of all of them.
TEST_F(PredictionPipelineTest, ItFollowsAnAnswerToTheNextWorker) {
  AddWorker(DraftingWorker());
  AddWorker(DraftingWorker());
  StartRouter();
  for (const auto& worker : workers_) TellDrafts(*worker);
  RecordingSink sink;
  pipeline_->Start(Predicting("abcdefgh", 20), &sink);
  Run(80 * kMicrosPerMilli);
  FakeWorker& first = Busy();
  FakeWorker& second = &first == workers_[0].get() ? *workers_[1] : *workers_[0];
  ASSERT_GT(sink.text().size(), 2u);
  first.Down();
  Run(10 * kSecond);
  EXPECT_EQ(sink.text(), "abcdefghijklmnopqrst");
  ASSERT_EQ(Submits(second).size(), 1u);
  EXPECT_EQ(PredictionOf(Submits(second)[0]), "abcdefgh");
  EXPECT_GT(Submits(second)[0].submit().choices(0).outputs_size(), 2);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.usage->accepted_prediction_tokens, 20u) << "no more than the answer has";
  EXPECT_EQ(sink.usage->rejected_prediction_tokens, 20u) << "one with each output";
  ExpectNothingLeft();
}

TEST_F(PredictionPipelineTest, ItsTextAndItsTokensAreInTheTenantsAccount) {
  AddWorker(DraftingWorker());
  const GenerateRequest ask = Predicting(std::string(1000, 'p'));
  PipelineOptions options;
  options.memory = std::make_shared<MemoryAccount>(HeldBytes(ask) + PromptBytes(ask.prompt));
  StartRouter(options);
  // As text it fits; as tokens it does not.
  const RecordingSink refused = RunOne(ask);
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->code, ApiCode::kUnavailable);
  EXPECT_EQ(options.memory->bytes(), 0u);
  GenerateRequest shorter = ask;
  shorter.prediction = std::string(30, 'p');
  EXPECT_TRUE(RunOne(shorter).usage.has_value());
  EXPECT_EQ(options.memory->bytes(), 0u) << "what has ended holds nothing";
  ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
