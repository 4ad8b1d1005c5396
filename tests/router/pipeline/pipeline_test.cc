// The pipeline against played workers, on virtual time: answers, refusals, losses, limits.
#include "router/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/pipeline/make_pipeline.h"
#include "tests/router/support/fake_worker.h"
#include "tests/router/support/recording_sink.h"

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;

class PipelineTest : public ::testing::Test {
 protected:
  FakeWorker& AddWorker(FakeWorkerOptions options = {}) {
    if (!workers_.empty() && options.target == "worker-0:9000") {
      options.target = "worker-" + std::to_string(workers_.size()) + ":9000";
      options.worker_id = "worker-" + std::to_string(workers_.size());
    }
    workers_.push_back(std::make_unique<FakeWorker>(world_, options));
    return *workers_.back();
  }

  void StartRouter(PipelineOptions options = {}) {
    for (const auto& worker : workers_) options.workers.push_back(worker->options().target);
    options.text_factory =
        [this](const std::string& bundle) -> absl::StatusOr<std::shared_ptr<const ModelText>> {
      if (bundle != kFakeBundle) return InvalidArgument("not the fake bundle");
      return std::shared_ptr<const ModelText>(text_);
    };
    const PipelineRuntime runtime{world_.executor(), background_, *dialer_,
                                  world_.rng(),      logger_,     metrics_};
    auto made = MakePipeline(std::move(options), runtime);
    ASSERT_TRUE(made.ok()) << made.status();
    pipeline_ = *std::move(made);
    Run(kSecond);
  }

  void Run(Micros duration) { world_.RunUntil(world_.clock().Now() + duration); }

  static GenerateRequest Ask(const std::string& prompt, int max_tokens = 5) {
    GenerateRequest ask;
    ask.prompt = TextPrompt{prompt, true};
    ask.sampling.max_tokens = max_tokens;
    return ask;
  }
  RecordingSink RunOne(GenerateRequest ask, Micros duration = 10 * kSecond) {
    RecordingSink sink;
    pipeline_->Start(std::move(ask), &sink);
    Run(duration);
    EXPECT_TRUE(sink.Over());
    return sink;
  }
  // Blames the field, in the message too.
  void ExpectBlamed(GenerateRequest ask, const std::string& field) {
    const RecordingSink sink = RunOne(std::move(ask));
    ASSERT_TRUE(sink.error.has_value()) << field;
    EXPECT_EQ(sink.error->param, field) << sink.error->message;
    EXPECT_EQ(sink.error->code, ApiCode::kInvalidArgument) << sink.error->message;
    EXPECT_NE(sink.error->message.find(field), std::string::npos) << sink.error->message;
    EXPECT_FALSE(sink.started.has_value());
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(pipeline_->LiveRequests(), 0u);
    Run(kSecond);
    for (const auto& worker : workers_) EXPECT_TRUE(worker->attempts.empty());
  }

  VirtualWorld world_{1};
  VirtualBackground background_{world_.executor(), kMicrosPerMilli};
  std::unique_ptr<Dialer> dialer_ = world_.MakeDialer();
  // Keeps what is said of workers.
  class KeepingLogger final : public Logger {
   public:
    KeepingLogger() : Logger(LogLevel::kInfo) {}
    std::vector<std::string> lines;

   private:
    void Write(LogLevel, std::string_view message, std::span<const LogField> fields) override {
      std::string line(message);
      for (const LogField& field : fields) {
        line += " " + std::string(field.key) + "=" + field.value.text;
      }
      lines.push_back(line);
    }
  };
  KeepingLogger logger_;
  Metrics metrics_;
  std::shared_ptr<FakeText> text_ = std::make_shared<FakeText>();
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(PipelineTest, AnswersWithTheTokensOfTheWorker) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("hi");
  ask.request_id = "req-1";
  const RecordingSink sink = RunOne(ask);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.text(), "abcde");
  EXPECT_EQ(sink.ids.at(0), FakeIds("abcde"));
  ASSERT_EQ(sink.ends.size(), 1u);
  EXPECT_EQ(sink.ends[0].finish_reason, "length");
  EXPECT_EQ(sink.usage->prompt_tokens, 3u);
  EXPECT_EQ(sink.usage->completion_tokens, 5u);
  EXPECT_EQ(sink.started->model, "fake");
  EXPECT_EQ(sink.started->model_id, "model-a");
  EXPECT_EQ(sink.started->worker, "worker-0");
  EXPECT_EQ(sink.started->prompt_ids, (std::vector<TokenId>{kFakeBos, 'h', 'i'}));
  const pb::Submit& submit = worker.heard.at(1).submit();
  EXPECT_EQ(submit.request_id(), "req-1");
  EXPECT_EQ(submit.sampling().seed(), sink.started->seed);
  EXPECT_EQ(submit.salt().size(), 32u);
  EXPECT_EQ(submit.model_id(), "model-a");
  ExpectNothingLeft();
}

TEST_F(PipelineTest, RenderedChatsGetNoSecondBeginningAndTheRestOfTheContext) {
  FakeWorkerOptions options;
  options.end_at = 3;
  FakeWorker& worker = AddWorker(options);
  StartRouter();
  GenerateRequest ask;
  ask.prompt = ChatPrompt{.messages_json = "[{}]", .tools_json = "", .template_kwargs_json = ""};
  ask.chat_defaults = true;
  const RecordingSink sink = RunOne(ask);
  EXPECT_EQ(sink.text(), "abc") << "the end-of-sequence token adds no text";
  EXPECT_EQ(sink.usage->completion_tokens, 4u);
  EXPECT_EQ(sink.ends.at(0).finish_reason, "stop");
  EXPECT_FALSE(sink.ends.at(0).stop_token.has_value()) << "nobody asked for it";
  EXPECT_EQ(sink.started->prompt_ids, FakeIds("<chat>[{}]"));
  EXPECT_EQ(worker.heard.at(1).submit().sampling().max_tokens(), 4096 - 10);
}

TEST_F(PipelineTest, CompletionsDefaultToSixteenTokens) {
  AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x");
  ask.sampling.max_tokens.reset();
  EXPECT_EQ(RunOne(ask).usage->completion_tokens, 16u);
}

TEST_F(PipelineTest, AnAskedForStopTokenIsNamed) {
  FakeWorkerOptions options;
  options.end_at = 2;
  AddWorker(options);
  StartRouter();
  GenerateRequest ask = Ask("x");
  ask.sampling.stop_token_ids = {kFakeEos};
  EXPECT_EQ(RunOne(ask).ends.at(0).stop_token, kFakeEos);
}

TEST_F(PipelineTest, AStopStringEndsTheChoiceAndTellsTheWorkerWhatCounts) {
  FakeWorkerOptions options;
  options.tokens_per_step = 4;  // the match ends inside an output
  FakeWorker& worker = AddWorker(options);
  StartRouter();
  GenerateRequest ask = Ask("x", 100);
  ask.sampling.stop = {"zzz", "efg"};
  const RecordingSink sink = RunOne(ask);
  EXPECT_EQ(sink.text(), "abcd");
  EXPECT_EQ(sink.ids.at(0), FakeIds("abcdefg"));
  EXPECT_EQ(sink.ends.at(0).finish_reason, "stop");
  EXPECT_EQ(sink.ends.at(0).stop_string, "efg");
  EXPECT_EQ(sink.usage->completion_tokens, 7u);
  const pb::Finish& finish = worker.heard.back().finish();
  EXPECT_EQ(finish.output_count(), 7u);
  EXPECT_EQ(finish.reason(), pb::STOP);
  ExpectNothingLeft();
}

TEST_F(PipelineTest, SeveralRequestsRunTogetherOnAllWorkersInTurn) {
  FakeWorker& first = AddWorker();
  FakeWorker& second = AddWorker();
  StartRouter();
  std::vector<RecordingSink> sinks(8);
  for (RecordingSink& sink : sinks) pipeline_->Start(Ask("x", 20), &sink);
  Run(50 * kMicrosPerMilli);
  EXPECT_EQ(first.attempts.size(), 4u);
  EXPECT_EQ(second.attempts.size(), 4u);
  Run(10 * kSecond);
  for (const RecordingSink& sink : sinks) EXPECT_EQ(sink.text(), "abcdefghijklmnopqrst");
  ExpectNothingLeft();
}

TEST_F(PipelineTest, CancelFreesTheWorkerWithinAStepAndIsSilent) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  RecordingSink sink;
  const RequestId id = pipeline_->Start(Ask("x", 1000), &sink);
  Run(100 * kMicrosPerMilli);
  EXPECT_EQ(worker.attempts.size(), 1u);
  pipeline_->Cancel(id);
  EXPECT_EQ(pipeline_->LiveRequests(), 0u);
  Run(worker.options().step);
  EXPECT_TRUE(worker.attempts.empty());
  EXPECT_FALSE(sink.Over());
  pipeline_->Cancel(id);  // again is harmless
}

TEST_F(PipelineTest, ASinkMayCancelInsideAnyCallback) {
  AddWorker();
  StartRouter();
  RecordingSink at_start, at_delta;
  RequestId first = 0, second = 0;
  at_start.on_started = [&] { pipeline_->Cancel(first); };
  at_delta.on_delta = [&](const Delta&) { pipeline_->Cancel(second); };
  first = pipeline_->Start(Ask("x"), &at_start);
  second = pipeline_->Start(Ask("x"), &at_delta);
  Run(kSecond);
  EXPECT_EQ(at_start.deltas, 0);
  EXPECT_EQ(at_delta.deltas, 1);
  EXPECT_FALSE(at_start.Over() || at_delta.Over());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, CancelBeforeAnythingHappened) {
  AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Cancel(pipeline_->Start(Ask("x"), &sink));
  Run(kSecond);
  EXPECT_FALSE(sink.started.has_value() || sink.Over());
  ExpectNothingLeft();
}

TEST_F(PipelineTest, AStreamingClientThatTakesNothingStopsTheWorkerAtTheWindow) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x", 1000);
  ask.streaming = true;
  RecordingSink sink;
  const RequestId id = pipeline_->Start(ask, &sink);
  Run(20 * kSecond);
  EXPECT_EQ(sink.ids.at(0).size(), 256u) << "the window, and not one more";
  pipeline_->Taken(id, 0, 64);
  Run(20 * kSecond);
  EXPECT_EQ(sink.ids.at(0).size(), 320u);
  pipeline_->Taken(id, 0, 100);  // less than a quarter of the window: not worth a frame
  Run(kSecond);
  EXPECT_EQ(sink.ids.at(0).size(), 320u);
  pipeline_->Taken(id, 0, 5000);  // beyond what it was given counts as all of it
  Run(20 * kSecond);
  EXPECT_EQ(sink.ids.at(0).size(), 320u + 256u);
  EXPECT_EQ(worker.attempts.begin()->second.choices[0].granted, 576u);
  pipeline_->Cancel(id);
}

TEST_F(PipelineTest, AnAnswerThatIsCollectedNeedsNoTaker) {
  AddWorker();
  StartRouter();
  EXPECT_EQ(RunOne(Ask("x", 1000), 30 * kSecond).ids.at(0).size(), 1000u);
}

TEST_F(PipelineTest, ACollectedAnswerEndsAtTheResponseLimit) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_response_bytes = 10;
  StartRouter(options);
  const RecordingSink sink = RunOne(Ask("x", 1000));
  EXPECT_EQ(sink.text().size(), 11u);
  EXPECT_EQ(sink.ends.at(0).finish_reason, "length");
  ExpectNothingLeft();
}

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

TEST_F(PipelineTest, AWorkerThatCannotResumeLeavesTheStreamWithAnError) {
  FakeWorkerOptions options;
  options.features.clear();
  FakeWorker& first = AddWorker(options);
  FakeWorker& second = AddWorker(options);
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  (first.attempts.empty() ? second : first).Down();
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
  EXPECT_EQ(says("phase=connecting"), 2) << "refused, then lost";
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

TEST_F(PipelineTest, UnknownModelsAreNamedWithThoseThatAreServed) {
  AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("x");
  ask.model = "nobody";
  const RecordingSink sink = RunOne(ask);
  EXPECT_EQ(sink.error->code, ApiCode::kNotFound);
  EXPECT_EQ(sink.error->param, "model");
  EXPECT_NE(sink.error->message.find("fake"), std::string::npos);
}

TEST_F(PipelineTest, ModelsAreListedOnceEach) {
  AddWorker();
  FakeWorkerOptions other;
  other.model_id = "model-b";
  other.names = {"other", "alias"};
  AddWorker(other);
  AddWorker();
  StartRouter();
  const std::vector<ModelEntry> models = pipeline_->Models();
  ASSERT_EQ(models.size(), 3u);
  uint32_t ready = 0;
  for (const ModelEntry& model : models) {
    EXPECT_EQ(model.max_model_len, 4096u);
    if (model.name == "fake") ready = model.workers_ready;
  }
  EXPECT_EQ(ready, 2u);
  GenerateRequest ask = Ask("x");
  ask.model = "alias";
  EXPECT_EQ(RunOne(ask).started->model_id, "model-b");
  ask.model = "";
  ExpectBlamed(ask, "model");
}

TEST_F(PipelineTest, AWorkerWithAnotherBundleOfTheSameModelIsRefused) {
  AddWorker();
  FakeWorkerOptions options;
  options.bundle = "another bundle";
  FakeWorker& late = AddWorker(options);
  late.Down();
  StartRouter();
  late.Up();
  Run(6 * kSecond);
  EXPECT_TRUE(late.attached());
  EXPECT_EQ(pipeline_->Models().at(0).workers_ready, 1u);
  EXPECT_EQ(RunOne(Ask("x")).started->worker, "worker-0");
}

TEST_F(PipelineTest, AnUnreadableBundleMakesNoModel) {
  FakeWorkerOptions options;
  options.bundle = "garbage";
  AddWorker(options);
  StartRouter();
  EXPECT_FALSE(pipeline_->Ready());
  EXPECT_EQ(RunOne(Ask("x")).error->code, ApiCode::kUnavailable);
}

TEST_F(PipelineTest, TokensAndText) {
  AddWorker();
  StartRouter();
  absl::StatusOr<TokenizeResult> tokens = absl::UnknownError("not called");
  absl::StatusOr<std::string> text = absl::UnknownError("not called");
  pipeline_->Tokenize("fake", TextPrompt{"hi", true}, [&](auto result) { tokens = result; });
  pipeline_->Detokenize("fake", {'h', 'i'}, [&](auto result) { text = result; });
  EXPECT_FALSE(tokens.ok() || text.ok()) << "never inside the call";
  Run(kSecond);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->ids, (std::vector<TokenId>{kFakeBos, 'h', 'i'}));
  EXPECT_EQ(tokens->pieces, (std::vector<std::string>{"", "h", "i"}));
  EXPECT_EQ(tokens->max_model_len, 4096u);
  EXPECT_EQ(text.value_or(""), "hi");
  pipeline_->Detokenize("fake", {-1}, [&](auto result) { text = result; });
  Run(kSecond);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  pipeline_->Detokenize("nobody", {1}, [&](auto result) { text = result; });
  Run(kSecond);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PipelineTest, TokenizeWorkIsBounded) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_tokenize_requests = 2;
  StartRouter(options);
  std::vector<absl::StatusCode> codes;
  for (int i = 0; i < 3; ++i) {
    pipeline_->Tokenize("fake", TextPrompt{"hi", true},
                        [&](auto result) { codes.push_back(result.status().code()); });
  }
  Run(kSecond);
  EXPECT_EQ(std::count(codes.begin(), codes.end(), absl::StatusCode::kOk), 2);
  EXPECT_EQ(std::count(codes.begin(), codes.end(), absl::StatusCode::kUnavailable), 1);
}

TEST_F(PipelineTest, EveryBadFieldIsNamed) {
  AddWorker();
  StartRouter();
  using Change = std::function<void(GenerateRequest&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"prompt", [](auto& a) { a.prompt = TokenPrompt{}; }},
      {"prompt",
       [](auto& a) {
         a.prompt = TextPrompt{"", false};
       }},
      {"prompt",
       [](auto& a) {
         a.prompt = TextPrompt{"\xff", true};
       }},
      {"prompt", [](auto& a) { a.prompt = TokenPrompt{{-1}}; }},
      {"prompt", [](auto& a) { a.prompt = TokenPrompt{{static_cast<TokenId>(kFakeVocab)}}; }},
      {"prompt",
       [](auto& a) {
         a.prompt = TextPrompt{std::string(4096, 'x'), false};
       }},
      {"messages",
       [](auto& a) {
         a.prompt = ChatPrompt{.messages_json = "[]", .tools_json = "", .template_kwargs_json = ""};
       }},
      {"max_tokens",
       [](auto& a) {
         a.prompt = TextPrompt{std::string(4092, 'x'), false};
       }},
      {"max_tokens", [](auto& a) { a.sampling.max_tokens = 0; }},
      {"max_tokens", [](auto& a) { a.sampling.max_tokens = -5; }},
      {"prompt_logprobs", [](auto& a) { a.sampling.prompt_logprobs = 1; }},
      {"truncate_prompt_tokens", [](auto& a) { a.truncate_prompt_tokens = 4097; }},
      {"truncate_prompt_tokens", [](auto& a) { a.truncate_prompt_tokens = 0; }},
      {"cache_salt", [](auto& a) { a.cache_salt = std::string(257, 's'); }},
      {"n", [](auto& a) { a.sampling.n = 2; }},
      {"n", [](auto& a) { a.sampling.n = 0; }},
      {"temperature", [](auto& a) { a.sampling.temperature = -1.0f; }},
      {"temperature", [](auto& a) { a.sampling.temperature = std::nanf(""); }},
      {"stop", [](auto& a) { a.sampling.stop = {""}; }},
  };
  for (const auto& [field, change] : cases) {
    GenerateRequest ask = Ask("x");
    change(ask);
    ExpectBlamed(ask, field);
  }
  ExpectNothingLeft();
  EXPECT_EQ(workers_[0]->heard.size(), 1u) << "none of them reached the worker";
}

TEST_F(PipelineTest, PromptAtTheLimitOfTheContextIsServed) {
  AddWorker();
  StartRouter();
  GenerateRequest ask = Ask("", 1);
  ask.prompt = TextPrompt{std::string(4095, 'x'), false};
  EXPECT_EQ(RunOne(ask).usage->completion_tokens, 1u);
}

TEST_F(PipelineTest, ALongPromptTravelsInParts) {
  FakeWorkerOptions options;
  options.max_model_len = 1u << 20;
  FakeWorker& worker = AddWorker(options);
  StartRouter();
  GenerateRequest ask = Ask("", 1000);
  std::vector<TokenId> ids(400'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i % 251);
  ask.prompt = TokenPrompt{ids};
  RecordingSink sink;
  const RequestId id = pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_EQ(worker.attempts.size(), 1u);
  EXPECT_EQ(worker.attempts.begin()->second.prompt, ids);
  pipeline_->Cancel(id);
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
  ask.resume->outputs = {FakeIds("abcdefghij")};
  ExpectBlamed(ask, "resume");
  ask.resume->outputs = {};
  ExpectBlamed(ask, "resume");
}

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
  ask.resume->outputs = {FakeIds("abcde"), FakeIds("bcde"), FakeIds("cdefgh")};
  ExpectBlamed(ask, "resume");
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

TEST(MakePipelineTest, BadSettingsAreNamed) {
  VirtualWorld world(1);
  VirtualBackground background(world.executor(), 1);
  auto dialer = world.MakeDialer();
  NullLogger logger;
  Metrics metrics;
  const PipelineRuntime runtime{world.executor(), background, *dialer,
                                world.rng(),      logger,     metrics};
  PipelineOptions policy;
  policy.routing_policy = "psychic";
  const absl::Status unknown = MakePipeline(policy, runtime).status();
  EXPECT_NE(StatusMessage(unknown).find("round-robin"), std::string::npos);
  PipelineOptions twice;
  twice.text_factory = [](const std::string&) {
    return absl::StatusOr<std::shared_ptr<const ModelText>>(std::make_shared<FakeText>());
  };
  twice.workers = {"a:1", "a:1"};
  Metrics other_metrics;
  const PipelineRuntime other{world.executor(), background, *dialer,
                              world.rng(),      logger,     other_metrics};
  EXPECT_FALSE(MakePipeline(twice, other).ok());
}

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
  FakeWorker& first = AddWorker(ScoringWorker());
  FakeWorker& second = AddWorker(ScoringWorker());
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Scored(prompt, 2), &sink);
  Run(GetParam() * 10 * kMicrosPerMilli + 5 * kMicrosPerMilli);
  (first.attempts.empty() ? second : first).Down();
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
