// Tool calls and thoughts through the pipeline: with a lost worker, a client that resumes, several
// choices, and models that have none.
#include "common/dialect/emitter.h"
#include "router/pipeline/held_bytes.h"
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

constexpr std::string_view kCall =
    "hm\n</think>\n\nok\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"bcd\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

// What a client sees of one choice.
struct Seen {
  std::string text, reasoning;
  std::vector<ToolCallDelta> calls;
};
Seen Joined(const std::vector<Delta>& deltas, uint32_t choice = 0) {
  Seen seen;
  for (const Delta& delta : deltas) {
    if (delta.choice != choice) continue;
    seen.text += delta.text;
    seen.reasoning += delta.reasoning;
    for (const ToolCallDelta& piece : delta.tool_calls) {
      if (!piece.id.empty()) {
        seen.calls.push_back(piece);
      } else {
        seen.calls.at(piece.index).arguments += piece.arguments;
      }
    }
  }
  return seen;
}

class PipelineToolsTest : public PipelineTest {
 protected:
  PipelineToolsTest() {
    text_->spoken = {dialect::FindDialect("hermes"), dialect::FindThoughts("qwen3")};
    text_->generation_prompt = "<think>\n";
  }
  static FakeWorkerOptions Writes(std::string_view script) {
    FakeWorkerOptions options;
    options.script = std::string(script);
    options.end_at = static_cast<int>(script.size());
    options.features = {"resume", "choices"};
    options.max_choices = 4;
    return options;
  }
  static GenerateRequest Chat(int max_tokens = 1000) {
    GenerateRequest ask;
    ChatPrompt chat;
    chat.messages_json = "[{}]";
    chat.tools_json = R"([{"type":"function","function":{"name":"f"}}])";
    ask.prompt = chat;
    ask.read_answer = true;
    ask.sampling.max_tokens = max_tokens;
    return ask;
  }
  RecordingSink Run(GenerateRequest ask) {
    deltas_.clear();
    RecordingSink sink;
    sink.on_delta = [this](const Delta& delta) { deltas_.push_back(delta); };
    pipeline_->Start(std::move(ask), &sink);
    PipelineTest::Run(100 * kSecond);
    EXPECT_TRUE(sink.Over());
    return sink;
  }

  std::vector<Delta> deltas_;
};

TEST_F(PipelineToolsTest, AnAnswerComesApart) {
  AddWorker(Writes(kCall));
  StartRouter();
  const RecordingSink sink = Run(Chat());
  ASSERT_TRUE(sink.usage.has_value()) << sink.error->message;
  const Seen seen = Joined(deltas_);
  EXPECT_EQ(seen.reasoning, "hm") << "the template opened the thought";
  EXPECT_EQ(seen.text, "ok");
  ASSERT_EQ(seen.calls.size(), 2u);
  EXPECT_EQ(seen.calls[0].name, "f");
  EXPECT_EQ(seen.calls[0].arguments, "{\"a\": \"bcd\"}");
  EXPECT_EQ(seen.calls[1].arguments, "{}");
  EXPECT_EQ(sink.ends.at(0).finish_reason, "tool_calls");
  EXPECT_EQ(sink.usage->completion_tokens, kCall.size() + 1);
  EXPECT_EQ(sink.usage->reasoning_tokens, std::string_view("hm\n</think").size());
  ExpectNothingLeft();
}

TEST_F(PipelineToolsTest, WithoutToolsTheThoughtAloneIsTakenOut) {
  AddWorker(Writes(kCall));
  StartRouter();
  for (const bool none : {false, true}) {
    GenerateRequest ask = Chat();
    if (none) {
      ask.tool_use.choice = ToolChoice::kNone;
    } else {
      std::get<ChatPrompt>(ask.prompt).tools_json.clear();
    }
    const RecordingSink sink = Run(ask);
    const Seen seen = Joined(deltas_);
    EXPECT_EQ(seen.reasoning, "hm");
    EXPECT_TRUE(seen.text.starts_with("ok\n<tool_call>")) << seen.text;
    EXPECT_TRUE(seen.calls.empty());
    EXPECT_EQ(sink.ends.at(0).finish_reason, "stop");
  }
}

TEST_F(PipelineToolsTest, AnAnswerThatIsCutEndsByItsLength) {
  AddWorker(Writes(kCall));
  StartRouter();
  const RecordingSink sink = Run(Chat(static_cast<int>(kCall.size()) - 5));
  EXPECT_EQ(sink.ends.at(0).finish_reason, "length");
  EXPECT_EQ(Joined(deltas_).calls.size(), 2u);
}

TEST_F(PipelineToolsTest, OneCallEndsTheAnswerWhereNoMoreMayCome) {
  FakeWorker& worker = AddWorker(Writes(kCall));
  StartRouter();
  GenerateRequest ask = Chat();
  ask.tool_use.parallel = false;
  const RecordingSink sink = Run(ask);
  EXPECT_EQ(Joined(deltas_).calls.size(), 1u);
  EXPECT_EQ(sink.ends.at(0).finish_reason, "tool_calls");
  EXPECT_LT(sink.usage->completion_tokens, kCall.find("g\""));
  const pb::RouterFrame& last = worker.heard.back();
  ASSERT_TRUE(last.has_finish());
  EXPECT_EQ(last.finish().output_count(), sink.usage->completion_tokens);
  ExpectNothingLeft();
}

// Wherever the worker dies, the client sees the same pieces, ids included.
TEST_F(PipelineToolsTest, ALostWorkerChangesNothing) {
  FakeWorkerOptions slow = Writes(kCall);
  AddWorker(slow);
  AddWorker(slow);
  StartRouter();
  GenerateRequest ask = Chat();
  ask.sampling.seed = 7;
  ask.sampling.n = 2;
  // Choice 1 writes the script from its second letter on.
  Run(ask);
  const Seen whole[] = {Joined(deltas_, 0), Joined(deltas_, 1)};
  for (size_t at = 1; at < kCall.size(); at += 11) {
    deltas_.clear();
    RecordingSink sink;
    sink.on_delta = [this](const Delta& delta) { deltas_.push_back(delta); };
    pipeline_->Start(ask, &sink);
    while (deltas_.size() < at) PipelineTest::Run(10 * kMicrosPerMilli);
    FakeWorker& busy = Busy();
    busy.Down();
    PipelineTest::Run(100 * kSecond);
    ASSERT_TRUE(sink.usage.has_value()) << at;
    for (uint32_t choice = 0; choice < 2; ++choice) {
      const Seen seen = Joined(deltas_, choice);
      EXPECT_EQ(seen.text, whole[choice].text) << at;
      EXPECT_EQ(seen.reasoning, whole[choice].reasoning);
      ASSERT_EQ(seen.calls.size(), whole[choice].calls.size());
      for (size_t i = 0; i < seen.calls.size(); ++i) {
        EXPECT_EQ(seen.calls[i].id, whole[choice].calls[i].id);
        EXPECT_EQ(seen.calls[i].arguments, whole[choice].calls[i].arguments);
      }
    }
    EXPECT_NE(whole[0].calls[0].id, whole[1].calls[0].id);
    busy.Up();
    PipelineTest::Run(10 * kSecond);
  }
}

TEST_F(PipelineToolsTest, AClientThatLostItsRouterResumesInACall) {
  AddWorker(Writes(kCall));
  StartRouter();
  GenerateRequest ask = Chat();
  const RecordingSink first = Run(ask);
  const Seen whole = Joined(deltas_);
  const std::vector<Delta> all = deltas_;
  for (size_t at = 1; at < all.size(); at += 7) {
    std::vector<TokenId> had;
    std::vector<Delta> seen(all.begin(), all.begin() + static_cast<ptrdiff_t>(at));
    for (const Delta& delta : seen) had.insert(had.end(), delta.ids.begin(), delta.ids.end());
    GenerateRequest again = Chat();
    again.resume =
        ResumeRequest{first.started->seed, first.started->created, first.started->model_id, {had}};
    deltas_ = seen;
    RecordingSink sink;
    sink.base = had.size();
    sink.on_delta = [this](const Delta& delta) { deltas_.push_back(delta); };
    pipeline_->Start(again, &sink);
    PipelineTest::Run(100 * kSecond);
    ASSERT_TRUE(sink.usage.has_value()) << at;
    const Seen joined = Joined(deltas_);
    EXPECT_EQ(joined.text, whole.text) << at;
    EXPECT_EQ(joined.reasoning, whole.reasoning);
    ASSERT_EQ(joined.calls.size(), 2u);
    EXPECT_EQ(joined.calls[0].arguments, whole.calls[0].arguments);
    EXPECT_EQ(joined.calls[1].id, whole.calls[1].id);
  }
}

TEST_F(PipelineToolsTest, AModelThatHasNoDialectTakesNoTools) {
  text_->spoken = {};
  AddWorker(Writes("abc"));
  StartRouter();
  ExpectBlamed(Chat(), "tools");
  GenerateRequest none = Chat();
  none.tool_use.choice = ToolChoice::kNone;
  EXPECT_EQ(Run(none).text(), "abc");
}

TEST_F(PipelineToolsTest, AnOperatorSaysHowAModelWritesCalls) {
  text_->spoken = {};
  text_->generation_prompt = "";
  AddWorker(Writes("[f(a=1)]"));
  PipelineOptions options;
  options.answer_rules = AnswerRules::Read({"fake=pythonic", "hermes"}, {"none"}).value();
  StartRouter(options);
  const RecordingSink sink = Run(Chat());
  ASSERT_EQ(Joined(deltas_).calls.size(), 1u);
  EXPECT_EQ(Joined(deltas_).calls[0].arguments, "{\"a\": 1}");
  const std::vector<ModelEntry> models = pipeline_->Models();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].tool_call_parser, "pythonic");
  EXPECT_EQ(models[0].reasoning_parser, "");
}

TEST_F(PipelineToolsTest, CallsAtTheirLimitAreCallsAndOneMoreIsTextAndCounted) {
  constexpr std::string_view kOne = "<tool_call>{\"name\":\"f\"}</tool_call>";
  constexpr std::string_view kMetric = "quire_router_answer_limits_total{limit=\"max_calls\"} ";
  const size_t limit = dialect::Limits{}.max_calls;
  text_->generation_prompt = "";
  std::string script;
  for (size_t i = 0; i <= limit; ++i) script += kOne;
  FakeWorkerOptions options = Writes(script);
  options.max_model_len = 1 << 16;
  options.tokens_per_step = 64;
  AddWorker(options);
  StartRouter();
  for (const size_t calls : {limit, limit + 1}) {
    const RecordingSink sink = Run(Chat(static_cast<int>(calls * kOne.size())));
    ASSERT_TRUE(sink.usage.has_value()) << sink.error->message;
    const Seen seen = Joined(deltas_);
    EXPECT_EQ(seen.calls.size(), limit);
    EXPECT_EQ(seen.text.empty(), calls == limit);
    const std::string counted = std::string(kMetric) + (calls == limit ? "0" : "1");
    EXPECT_NE(metrics_.Render().find(counted), std::string::npos);
  }
}

// Behind thoughts a source is quoted, and may grow past what a frame holds.
TEST_F(PipelineToolsTest, AConstraintThatGrowsBehindThoughtsIsRefusedByTheClientsField) {
  FakeWorkerOptions options = Writes("abc");
  options.features = {"resume", "choices", "constraint"};
  AddWorker(options);
  StartRouter();
  GenerateRequest ask = Chat();
  std::get<ChatPrompt>(ask.prompt).tools_json.clear();
  ask.constraint.kind = ConstraintKind::kRegex;
  ask.constraint_field = "guided_regex";
  ask.constraint.source = std::string(kMaxConstraintBytes, '"');
  const RecordingSink sink = Run(ask);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kInvalidArgument);
  EXPECT_EQ(sink.error->param, "guided_regex");
}

TEST_F(PipelineToolsTest, ToolsCountForTheTypesOfTheirParameters) {
  GenerateRequest ask = Chat();
  const size_t bare = HeldBytes(ask);
  std::get<ChatPrompt>(ask.prompt).tools_json += std::string(1000, ' ');
  EXPECT_EQ(HeldBytes(ask), bare + 1000 * kBytesPerToolByte);
}

TEST_F(PipelineToolsTest, BadToolsAreBlamed) {
  AddWorker(Writes("abc"));
  StartRouter();
  GenerateRequest ask = Chat();
  std::get<ChatPrompt>(ask.prompt).tools_json = "{}";
  ExpectBlamed(ask, "tools");
}

// --- a budget of thoughts

class ThoughtBudgetTest : public PipelineToolsTest {
 protected:
  static constexpr TokenId kOpen = kFakeVocab, kClose = kFakeVocab + 1, kTool = kFakeVocab + 2;

  ThoughtBudgetTest() { text_->specials = {"<think>", "</think>", "<tool_call>"}; }
  static FakeWorkerOptions Thinks() {
    FakeWorkerOptions options = Writes("abc");
    options.features.emplace_back("thought_budget");
    return options;
  }
  static GenerateRequest Ask(uint32_t budget) {
    GenerateRequest ask = Chat();
    std::get<ChatPrompt>(ask.prompt).tools_json.clear();
    ask.thinking.budget = budget;
    return ask;
  }
  static const pb::Submit& Last(const FakeWorker& worker) {
    for (auto it = worker.heard.rbegin(); it != worker.heard.rend(); ++it) {
      if (it->has_submit()) return it->submit();
    }
    ADD_FAILURE() << "no submit came";
    return pb::Submit::default_instance();
  }
  static std::vector<TokenId> Firsts(
      const google::protobuf::RepeatedPtrField<pb::TokenSequence>& marks) {
    std::vector<TokenId> ids;
    for (const pb::TokenSequence& mark : marks) {
      EXPECT_EQ(mark.ids_size(), 1);
      ids.push_back(mark.ids(0));
    }
    return ids;
  }
};

TEST_F(ThoughtBudgetTest, EveryAttemptCarriesItInTheModelsTokens) {
  FakeWorkerOptions slow = Thinks();
  slow.script = std::string(400, 'a');
  slow.end_at = 400;
  AddWorker(slow);
  AddWorker(slow);
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask(100), &sink);
  PipelineTest::Run(200 * kMicrosPerMilli);
  FakeWorker& running = Busy();
  FakeWorker& other = &running == workers_[0].get() ? *workers_[1] : *workers_[0];
  running.Down();
  PipelineTest::Run(100 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(Last(other).attempt(), 2u);
  for (const FakeWorker* worker : {&running, &other}) {
    const pb::ThoughtBudget& budget = Last(*worker).thought_budget();
    EXPECT_EQ(budget.tokens(), 100u);
    EXPECT_TRUE(budget.opened()) << "the template opened the thought";
    EXPECT_FALSE(budget.repeats());
    EXPECT_EQ(Firsts(budget.opens()), std::vector<TokenId>{kOpen});
    EXPECT_EQ(Firsts(budget.closes()), std::vector<TokenId>{kClose});
    EXPECT_EQ(budget.end_size(), 11) << "a newline, the mark, an empty line: one byte each here";
    const auto& required = Last(*worker).required_features();
    EXPECT_EQ(std::count(required.begin(), required.end(), "thought_budget"), 1);
  }
  ExpectNothingLeft();
}

TEST_F(ThoughtBudgetTest, ACallEndsAThoughtToo) {
  FakeWorker& worker = AddWorker(Thinks());
  StartRouter();
  GenerateRequest ask = Chat();
  ask.thinking.budget = 0;
  Run(ask);
  EXPECT_EQ(Firsts(Last(worker).thought_budget().closes()), (std::vector<TokenId>{kClose, kTool}));
}

TEST_F(ThoughtBudgetTest, HarmonyGoesOnWithAnotherMessage) {
  text_->spoken = {dialect::FindDialect("openai"), dialect::FindThoughts("openai")};
  text_->specials = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
                     "<|end|>",   "<|return|>",  "<|call|>"};
  FakeWorker& worker = AddWorker(Thinks());
  StartRouter();
  ExpectBlamed(Ask(5), "thinking_token_budget");
  EXPECT_TRUE(worker.attempts.empty());
}

TEST_F(ThoughtBudgetTest, WhereItCannotHoldItIsBlamedUnlessTheClientCannotKnow) {
  FakeWorker& worker = AddWorker(Thinks());
  StartRouter();
  const auto refused = [&](GenerateRequest ask) {
    ask.thinking.budget_field = "thinking_budget";
    ExpectBlamed(ask, "thinking_budget");
    ask.thinking.budget_firm = false;
    EXPECT_EQ(Run(ask).text(), "abc");
    EXPECT_FALSE(Last(worker).has_thought_budget());
  };
  text_->generation_prompt = "";
  text_->specials = {"<think>"};
  refused(Ask(5));  // it ends thoughts by words
}

TEST_F(ThoughtBudgetTest, AModelWithoutThoughtsHasNone) {
  text_->spoken = {dialect::FindDialect("hermes"), nullptr};
  AddWorker(Thinks());
  StartRouter();
  ExpectBlamed(Ask(5), "thinking_token_budget");
}

TEST_F(ThoughtBudgetTest, WorkersThatServeNoneAreNamed) {
  AddWorker(Writes("abc"));
  StartRouter();
  ExpectBlamed(Ask(5), "thinking_token_budget");
}

TEST_F(ThoughtBudgetTest, BeamSearchesTakeNone) {
  FakeWorkerOptions options = Thinks();
  options.features.emplace_back("beam_search");
  AddWorker(options);
  StartRouter();
  GenerateRequest ask = Ask(5);
  ask.sampling.use_beam_search = true;
  ask.sampling.n = 2;
  ExpectBlamed(ask, "thinking_token_budget");
}

TEST_F(ThoughtBudgetTest, ItsMemoryCounts) {
  GenerateRequest ask = Ask(5);
  const size_t with = HeldBytes(ask);
  ask.thinking.budget.reset();
  EXPECT_EQ(with, HeldBytes(ask) + kBytesPerThoughtBudget);
}

TEST(AnswerRulesTest, NamesAreKnownAndSaidOnce) {
  const auto said = [](const std::vector<std::string>& dialects,
                       const std::vector<std::string>& thoughts) {
    return std::string(StatusMessage(AnswerRules::Read(dialects, thoughts).status()));
  };
  EXPECT_TRUE(said({"herms"}, {}).starts_with("--tool-call-parser: \"herms\" is not known; known"))
      << said({"herms"}, {});
  EXPECT_NE(said({}, {"m=x"}).find("--reasoning-parser: \"x\""), std::string::npos);
  EXPECT_NE(said({"m=hermes", "m=mistral"}, {}).find("model m"), std::string::npos);
  const AnswerRules rules = AnswerRules::Read({"m=qwen3_xml", "none"}, {"m=deepseek_r1"}).value();
  EXPECT_EQ(rules.Of("m", {}).dialect->name, "qwen3_coder");
  EXPECT_EQ(rules.Of("m", {}).thoughts->name, "deepseek_r1");
  EXPECT_EQ(rules.Of("other", {dialect::FindDialect("hermes"), nullptr}).dialect, nullptr);
}

}  // namespace
}  // namespace quire
