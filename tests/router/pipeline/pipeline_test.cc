// A request and its answer: tokens, windows, ends, models, limits, bad fields.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

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

TEST_F(PipelineTest, AChangedSaltKeySaltsNewRequestsOnly) {
  FakeWorker& first = AddWorker();
  FakeWorker& second = AddWorker();
  StartRouter();
  RecordingSink old_one, new_one;
  pipeline_->Start(Ask("hi", 400), &old_one);
  Run(100 * kMicrosPerMilli);
  FakeWorker& has_it = first.attempts.empty() ? second : first;
  FakeWorker& other = first.attempts.empty() ? first : second;
  ASSERT_EQ(has_it.attempts.size(), 1u);
  const std::string salt = has_it.attempts.begin()->second.submit.salt();
  pipeline_->UseSaltKey("another secret of a fleet");
  has_it.Down();
  Run(100 * kMicrosPerMilli);
  ASSERT_EQ(other.attempts.size(), 1u);
  EXPECT_EQ(other.attempts.begin()->second.submit.salt(), salt) << "carried on with what it had";
  pipeline_->Start(Ask("hi", 400), &new_one);
  Run(100 * kMicrosPerMilli);
  ASSERT_EQ(other.attempts.size(), 2u);
  EXPECT_NE(other.attempts.rbegin()->second.submit.salt(), salt);
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
  EXPECT_FALSE(sink.ends.at(0).stop_token.has_value()) << "the request has not asked for it";
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
  EXPECT_EQ(RunOne(Ask("x", 10)).text().size(), 10u) << "at the limit";
  EXPECT_NE(metrics_.Render().find("quire_router_responses_cut_total 0"), std::string::npos);
  const RecordingSink sink = RunOne(Ask("x", 1000));
  EXPECT_EQ(sink.text().size(), 11u);
  EXPECT_EQ(sink.ends.at(0).finish_reason, "length");
  EXPECT_NE(metrics_.Render().find("quire_router_responses_cut_total 1"), std::string::npos);
  ExpectNothingLeft();
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
  const ApiError kNotCalled{ApiCode::kInternal, "not called", "", 0};
  Result<TokenizeResult> tokens = kNotCalled;
  Result<std::string> text = kNotCalled;
  const auto take = [&](Result<std::string> result) { text = std::move(result); };
  pipeline_->Tokenize({{"fake", nullptr}, TextPrompt{"hi", true}, true},
                      [&](auto result) { tokens = std::move(result); });
  pipeline_->Detokenize({"fake", nullptr}, {'h', 'i'}, take);
  EXPECT_FALSE(tokens.ok() || text.ok()) << "never inside the call";
  Run(kSecond);
  ASSERT_TRUE(tokens.ok() && text.ok());
  EXPECT_EQ(tokens.value().ids, (std::vector<TokenId>{kFakeBos, 'h', 'i'}));
  EXPECT_EQ(tokens.value().pieces, (std::vector<std::string>{"", "h", "i"}));
  EXPECT_EQ(tokens.value().max_model_len, 4096u);
  EXPECT_EQ(text.value(), "hi");
  pipeline_->Detokenize({"fake", nullptr}, {-1}, take);
  Run(kSecond);
  EXPECT_EQ(text.error().code, ApiCode::kInvalidArgument);
  pipeline_->Detokenize({"nobody", nullptr}, {1}, take);
  Run(kSecond);
  EXPECT_EQ(text.error().code, ApiCode::kNotFound);
}

TEST_F(PipelineTest, TokenizeWorkIsBoundedOfATenantAndOfAll) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_tokenize_requests = 2;
  options.limits.max_tokenize_requests_of_all = 3;
  StartRouter(options);
  std::vector<std::string> served;
  std::vector<std::string> refused;
  for (const std::string name : {"a", "a", "a", "b", "b"}) {
    TenantProfile profile;
    profile.name = name;
    pipeline_->Tokenize(
        {{"fake", std::make_shared<const TenantProfile>(profile)}, TextPrompt{"hi"}},
        [&, name](const Result<TokenizeResult>& result) {
          (result.ok() ? served : refused).push_back(name);
          if (result.ok()) return;
          EXPECT_EQ(result.error().code, ApiCode::kUnavailable);
          EXPECT_GT(result.error().retry_after_ms, 0u);
        });
  }
  pipeline_->CheckInvariants();
  Run(kSecond);
  EXPECT_EQ(served, (std::vector<std::string>{"a", "a", "b"}));
  EXPECT_EQ(refused, (std::vector<std::string>{"a", "b"}));
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
      {"text_input",
       [](auto& a) {
         a.prompt = TextPrompt{std::string(4096, 'x'), false, "text_input"};
       }},
      {"token_ids",
       [](auto& a) {
         a.prompt = TokenPrompt{std::vector<TokenId>(4096, 'x'), "token_ids"};
       }},
      {"messages",
       [](auto& a) {
         a.prompt = ChatPrompt{
             .messages_json = std::string(4096, 'x'), .tools_json = "", .template_kwargs_json = ""};
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

TEST_F(PipelineTest, TokenIdsWaitForNoOtherThread) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  GenerateRequest ids = Ask("", 1000);
  ids.prompt = TokenPrompt{{1, 2, 3}};
  RecordingSink first, second;
  pipeline_->Start(ids, &first);
  pipeline_->Start(Ask("a text", 1000), &second);
  Run(kMicrosPerMilli / 2);  // the background takes a millisecond
  EXPECT_EQ(worker.attempts.size(), 1u);
  Run(kMicrosPerMilli);
  EXPECT_EQ(worker.attempts.size(), 2u);
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

TEST(MakePipelineTest, BadSettingsAreNamed) {
  VirtualWorld world(1);
  VirtualBackground background(world.executor(), 1);
  auto dialer = world.MakeDialer();
  NullLogger logger;
  Metrics metrics;
  const PipelineRuntime runtime{world.executor(), background, *dialer,
                                world.rng(),      logger,     metrics};
  PipelineOptions twice;
  twice.text_factory = [](const std::string&) {
    return absl::StatusOr<std::shared_ptr<const ModelText>>(std::make_shared<FakeText>());
  };
  twice.workers = {"a:1", "a:1"};
  EXPECT_FALSE(MakePipeline(twice, runtime).ok());
}

}  // namespace
}  // namespace quire
