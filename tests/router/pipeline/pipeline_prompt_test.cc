// Prompt logprobs, prompts alone, truncation, defaults.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

FakeWorkerOptions ScoringWorker() {
  FakeWorkerOptions options;
  options.features = {"resume", "prompt_logprobs", "logprobs"};
  return options;
}

void ExpectPrompt(const Started& started, const std::string& prompt, size_t tops) {
  ASSERT_EQ(started.prompt_logprobs.size(), prompt.size());
  EXPECT_TRUE(started.prompt_logprobs[0].unscored);
  for (size_t i = 0; i < prompt.size(); ++i) {
    const TokenLogprob& token = started.prompt_logprobs[i];
    EXPECT_EQ(token.token, prompt.substr(i, 1));
    if (i == 0) continue;
    EXPECT_FALSE(token.unscored);
    EXPECT_EQ(token.logprob, -0.25f * static_cast<float>(i));
    EXPECT_EQ(token.rank, i);
    ASSERT_EQ(token.top.size(), tops);
    if (tops > 0) {
      EXPECT_EQ(token.top[0].token, "b");
    }
  }
}

GenerateRequest Scored(const std::string& prompt, int tops, int max_tokens = 5) {
  GenerateRequest ask;
  ask.prompt = TextPrompt{prompt, false};
  ask.sampling.max_tokens = max_tokens;
  ask.sampling.prompt_logprobs = tops;
  return ask;
}

TEST_F(PipelineTest, PromptLogprobsComeInPartsAndAreToldAtTheStart) {
  FakeWorker& worker = AddWorker(ScoringWorker());
  StartRouter();
  for (const int tops : {0, 2}) {
    GenerateRequest ask = Scored("hello world", tops);
    ask.echo = tops == 0;
    const RecordingSink sink = RunOne(ask);
    ASSERT_TRUE(sink.usage.has_value());
    ExpectPrompt(*sink.started, "hello world", static_cast<size_t>(tops));
    EXPECT_EQ(sink.started->prompt_text, ask.echo ? "hello world" : "");
    EXPECT_EQ(sink.text(), "abcde");
  }
  EXPECT_EQ(worker.heard.at(1).submit().sampling().prompt_logprobs(), 1u);
  EXPECT_EQ(worker.heard.at(1).submit().required_features(0), "prompt_logprobs");
  ExpectNothingLeft();
}

TEST_F(PipelineTest, ThePromptAloneIsAnAnswer) {
  AddWorker(ScoringWorker());
  StartRouter();
  GenerateRequest ask = Scored("hello", 1, 0);
  const RecordingSink scored = RunOne(ask);
  ASSERT_TRUE(scored.usage.has_value());
  ExpectPrompt(*scored.started, "hello", 1);
  EXPECT_EQ(scored.usage->completion_tokens, 0u);
  ASSERT_EQ(scored.ends.size(), 1u);
  EXPECT_EQ(scored.ends[0].finish_reason, "length");
  ask.sampling.prompt_logprobs.reset();
  ask.echo = true;
  const RecordingSink echoed = RunOne(ask);
  ASSERT_TRUE(echoed.usage.has_value());
  EXPECT_EQ(echoed.started->prompt_text, "hello");
  EXPECT_TRUE(echoed.started->prompt_logprobs.empty());
}

class PromptLossTest : public PipelineTest, public ::testing::WithParamInterface<int> {};

// Whenever the worker is lost: each position once, and none asked for again that is known.
TEST_P(PromptLossTest, PromptLogprobsSurviveALostWorker) {
  const std::string prompt = "a prompt of some length";
  AddWorker(ScoringWorker());
  AddWorker(ScoringWorker());
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Scored(prompt, 2), &sink);
  Run(GetParam() * 10 * kMicrosPerMilli + 5 * kMicrosPerMilli);
  Busy().Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  ExpectPrompt(*sink.started, prompt, 2);
  EXPECT_EQ(sink.text(), "abcde");
  for (const auto& worker : workers_) {
    for (const pb::RouterFrame& frame : worker->heard) {
      if (!frame.has_submit() || frame.submit().choices(0).outputs_size() == 0) continue;
      EXPECT_EQ(frame.submit().sampling().prompt_logprobs(), 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, PromptLossTest, ::testing::Range(1, 13));

TEST_F(PipelineTest, AClientThatGoesOnHasHadThePrompt) {
  FakeWorker& worker = AddWorker(ScoringWorker());
  StartRouter();
  GenerateRequest ask = Scored("hello", 1);
  ask.echo = true;
  ask.resume = ResumeRequest{1, 2, "model-a", {FakeIds("ab")}};
  RecordingSink sink;
  sink.base = 2;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.started->prompt_text, "");
  EXPECT_TRUE(sink.started->prompt_logprobs.empty());
  EXPECT_EQ(worker.heard.at(1).submit().sampling().prompt_logprobs(), 0u);
}

TEST_F(PipelineTest, ADefaultThatIsLeftOutIsToldOnce) {
  text_->mutable_generation().unusable = {"top_p: must be in (0, 1], is 0"};
  AddWorker();
  StartRouter();
  EXPECT_TRUE(RunOne(Ask("x")).usage.has_value());
  EXPECT_EQ(std::count(logger_.lines.begin(), logger_.lines.end(),
                       "a sampling default in a model's generation_config.json is left out "
                       "model_id=model-a reason=top_p: must be in (0, 1], is 0"),
            1);
}

using SpoilPrompt = void (*)(pb::Step&);
class PromptOrderTest : public PipelineTest, public ::testing::WithParamInterface<SpoilPrompt> {};

// What a worker may not do with the logprobs of a prompt: the attempt is broken, the request is
// carried by the next worker.
TEST_P(PromptOrderTest, PromptLogprobsOutOfOrderBreakTheAttempt) {
  FakeWorker& bad = AddWorker(ScoringWorker());
  FakeWorker& good = AddWorker(ScoringWorker());
  bad.tamper = [](pb::Step& step) {
    if (step.prompt_logprobs_size() > 0) GetParam()(step);
  };
  StartRouter();
  const RecordingSink first = RunOne(Scored("hello", 1));
  const RecordingSink second = RunOne(Scored("hello", 1));  // round robin: the other worker
  for (const RecordingSink* sink : {&first, &second}) {
    ASSERT_TRUE(sink->usage.has_value());
    ExpectPrompt(*sink->started, "hello", 1);
  }
  EXPECT_GE(good.heard.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, PromptOrderTest,
    ::testing::Values(
        [](pb::Step& step) { step.mutable_prompt_logprobs(0)->set_first_position(0); },
        [](pb::Step& step) { step.mutable_prompt_logprobs(0)->set_first_position(4'000'000'000u); },
        [](pb::Step& step) { step.mutable_prompt_logprobs(0)->clear_ranks(); },
        [](pb::Step& step) { step.mutable_prompt_logprobs(0)->clear_top(); },
        [](pb::Step& step) {
          for (int i = 0; i < 50; ++i) {
            step.mutable_prompt_logprobs(0)->add_logprobs(0);
            step.mutable_prompt_logprobs(0)->add_ranks(1);
            step.mutable_prompt_logprobs(0)->add_top();
          }
        },
        // Outputs come without them.
        [](pb::Step& step) { step.clear_prompt_logprobs(); }));

TEST_F(PipelineTest, MorePromptLogprobsThanARouterKeepsAreRefused) {
  AddWorker(ScoringWorker());
  PipelineOptions options;
  options.limits.max_prompt_logprobs = 15;
  StartRouter(options);
  EXPECT_TRUE(RunOne(Scored("hello", 2)).usage.has_value());
  ExpectBlamed(Scored("hello", 3), "prompt_logprobs");
}

TEST_F(PipelineTest, TruncationKeepsTheEndOfThePrompt) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("", 10);
  ask.prompt = TextPrompt{std::string(5000, 'x') + "yz", false};
  ask.truncate_prompt_tokens = 3;
  EXPECT_EQ(RunOne(ask).usage->prompt_tokens, 3u);
  EXPECT_EQ(worker.heard.at(1).submit().prompt_ids(2), 'z');
  ask.truncate_prompt_tokens = -1;  // all that leaves room for the answer
  const RecordingSink sink = RunOne(ask);
  EXPECT_EQ(sink.usage->prompt_tokens, 4096u - 10u);
  EXPECT_EQ(sink.usage->completion_tokens, 10u);
}

class DefaultsTest : public PipelineTest, public ::testing::WithParamInterface<bool> {};

TEST_P(DefaultsTest, TheModelsDefaultsCanBeSwitchedOff) {
  text_->mutable_generation().temperature = 0.25f;
  text_->mutable_generation().top_k = 7;
  FakeWorkerOptions worker;
  worker.end_at = 2;
  AddWorker(worker);
  PipelineOptions options;
  options.generation_defaults = GetParam();
  StartRouter(options);
  const RecordingSink sink = RunOne(Ask("x", 10));
  const auto& sampling = workers_[0]->heard.at(1).submit().sampling();
  EXPECT_EQ(sampling.temperature(), GetParam() ? 0.25f : 1.0f);
  EXPECT_EQ(sampling.top_k(), GetParam() ? 7 : 0);
  EXPECT_EQ(sink.text(), "ab") << "the model's end-of-sequence ids hold all the same";
}

INSTANTIATE_TEST_SUITE_P(OnAndOff, DefaultsTest, ::testing::Bool());

}  // namespace
}  // namespace quire
