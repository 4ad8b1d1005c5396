// Names and models: aliases, an update under one name, weights, pins, answers that are gone on
// with.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

class PipelinePoolsTest : public PipelineTest {
 protected:
  FakeWorker& AddModel(const std::string& model_id, const std::string& script = "abc") {
    FakeWorkerOptions options;
    options.model_id = model_id;
    options.script = script;
    return AddWorker(options);
  }
  std::map<std::string, int> Models(int requests) {
    std::map<std::string, int> models;
    for (int i = 0; i < requests; ++i) {
      const RecordingSink sink = RunOne(Ask("x", 1), 100 * kMicrosPerMilli);
      if (sink.started) ++models[sink.started->model_id];
    }
    return models;
  }
  static PoolRules Rules(const PoolFlags& flags) { return ReadPoolRules(flags).value(); }
};

TEST_F(PipelinePoolsTest, AnAliasIsAnotherName) {
  AddWorker();
  PipelineOptions options;
  options.pool_rules = Rules({{"gpt-4=fake", "gone=nobody"}, {}, {}});
  StartRouter(options);
  GenerateRequest ask = Ask("x");
  ask.model = "gpt-4";
  const RecordingSink sink = RunOne(ask);
  EXPECT_EQ(sink.started->model, "gpt-4") << "as it was asked for";
  EXPECT_EQ(sink.started->model_id, "model-a");
  std::vector<std::string> names;
  for (const ModelEntry& entry : pipeline_->Models()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fake", "gpt-4"})) << "what it stands for is served";
  ask.model = "gone";
  EXPECT_EQ(RunOne(ask).error->code, ApiCode::kNotFound);
}

TEST_F(PipelinePoolsTest, AnUpdateUnderOneNameNeverMixesModels) {
  FakeWorker& old_worker = AddModel("model-old", "abcdefgh");
  FakeWorker& new_worker = AddModel("model-new", "ABCDEFGH");
  new_worker.Down();
  StartRouter();
  EXPECT_EQ(Models(5), (std::map<std::string, int>{{"model-old", 5}}));
  RecordingSink running;
  pipeline_->Start(Ask("x", 200), &running);
  Run(100 * kMicrosPerMilli);
  new_worker.Up();
  Run(6 * kSecond);
  const std::vector<ModelEntry> entries = pipeline_->Models();
  ASSERT_EQ(entries.size(), 1u) << "each name once";
  EXPECT_EQ(entries[0].model_ids, (std::vector<std::string>{"model-old", "model-new"}));
  EXPECT_EQ(entries[0].workers_ready, 2u);
  const std::map<std::string, int> shared = Models(40);
  EXPECT_GT(shared.at("model-old"), 5);
  EXPECT_GT(shared.at("model-new"), 5);
  RecordingSink last;
  GenerateRequest ask = Ask("x", 200);
  ask.resume = ResumeRequest{1, 1, "model-old", {{}}};  // to know where it begins
  pipeline_->Start(ask, &last);
  Run(100 * kMicrosPerMilli);
  old_worker.Down();
  Run(5 * kSecond);
  ASSERT_TRUE(last.error.has_value()) << "no worker of its model is left";
  for (const char c : last.text()) EXPECT_TRUE(c >= 'a' && c <= 'h') << c;
  EXPECT_EQ(Models(5), (std::map<std::string, int>{{"model-new", 5}}));
}

TEST_F(PipelinePoolsTest, ASessionStaysWithItsModel) {
  AddModel("model-old");
  AddModel("model-new");
  StartRouter();
  std::set<std::string> all;
  for (int session = 0; session < 8; ++session) {
    std::set<std::string> models;
    for (int i = 0; i < 5; ++i) {
      GenerateRequest ask = Ask("x", 1);
      ask.session = "session-" + std::to_string(session);
      models.insert(RunOne(ask, 100 * kMicrosPerMilli).started->model_id);
    }
    EXPECT_EQ(models.size(), 1u);
    all.insert(models.begin(), models.end());
  }
  EXPECT_EQ(all.size(), 2u);
}

TEST_F(PipelinePoolsTest, WeightsShareAName) {
  AddModel("model-old");
  AddModel("model-new");
  PipelineOptions options;
  options.pool_rules = Rules({{}, {}, {"fake=model-o:1,model-n:0"}});
  StartRouter(options);
  EXPECT_EQ(Models(20), (std::map<std::string, int>{{"model-old", 20}}));
}

TEST_F(PipelinePoolsTest, APinRefusesStrangersAndSaysSo) {
  AddModel("model-old");
  AddModel("model-new");
  PipelineOptions options;
  options.pool_rules = Rules({{}, {"fake=model-old"}, {}});
  StartRouter(options);
  EXPECT_EQ(Models(10), (std::map<std::string, int>{{"model-old", 10}}));
  const bool said = std::any_of(logger_.lines.begin(), logger_.lines.end(), [](const auto& line) {
    return line.find("phase=refused") != std::string::npos &&
           line.find("--pin-model") != std::string::npos;
  });
  EXPECT_TRUE(said);
  EXPECT_NE(metrics_.Render().find("quire_router_workers{phase=\"refused\"} 1"), std::string::npos);
}

TEST_F(PipelinePoolsTest, AnAnswerGoesOnWithTheModelThatBeganIt) {
  AddModel("model-old");
  AddModel("model-new");
  PipelineOptions options;
  options.pool_rules = Rules({{}, {}, {"fake=model-old:1,model-new:0"}});
  StartRouter(options);
  GenerateRequest ask = Ask("x", 3);
  ask.resume = ResumeRequest{1, 1, "model-new", {{'a'}}};
  RecordingSink sink;
  sink.base = 1;
  pipeline_->Start(ask, &sink);
  Run(kSecond);
  ASSERT_TRUE(sink.started.has_value());
  EXPECT_EQ(sink.started->model_id, "model-new") << "whatever the weights are now";
  ask.resume->model_id = "model-unknown";
  const RecordingSink unknown = RunOne(ask);
  ASSERT_TRUE(unknown.error.has_value());
  EXPECT_EQ(unknown.error->code, ApiCode::kConflict);
  EXPECT_EQ(unknown.error->param, "resume");
}

TEST_F(PipelinePoolsTest, AModelThatWasReplacedIsAConflictForWhoGoesOnWithIt) {
  FakeWorker& worker = AddModel("model-old");
  AddModel("model-new");
  StartRouter();
  GenerateRequest ask = Ask("x", 3);
  ask.resume = ResumeRequest{1, 1, "model-old", {{'a'}}};
  worker.Down();
  Run(kSecond);
  const RecordingSink away = RunOne(ask);
  ASSERT_TRUE(away.error.has_value());
  EXPECT_EQ(away.error->code, ApiCode::kUnavailable) << "the worker that has it may come back";
  EXPECT_GT(away.error->retry_after_ms, 0u);
  worker.options().model_id = "model-new";
  worker.Up();
  Run(2 * kSecond);
  RecordingSink replaced;
  pipeline_->Start(ask, &replaced);
  Run(1400 * kMicrosPerMilli);
  EXPECT_FALSE(replaced.Over()) << "another one that has it may come";
  Run(200 * kMicrosPerMilli);
  ASSERT_TRUE(replaced.error.has_value());
  EXPECT_EQ(replaced.error->code, ApiCode::kConflict);
  EXPECT_EQ(replaced.error->param, "resume");
  ask.resume.reset();
  EXPECT_EQ(RunOne(ask).started->model_id, "model-new");
}

TEST_F(PipelinePoolsTest, AModelIsNotGoneWhileAWorkerHasNotSaidWhatItServes) {
  AddModel("model-new");
  FakeWorker& late = AddModel("model-old");
  late.Down();
  StartRouter();
  GenerateRequest ask = Ask("x", 3);
  ask.resume = ResumeRequest{1, 1, "model-old", {{'a'}}};
  const RecordingSink early = RunOne(ask);
  EXPECT_EQ(early.error->code, ApiCode::kUnavailable);
  RecordingSink sink;
  sink.base = 1;
  pipeline_->Start(ask, &sink);
  Run(kSecond / 10);
  late.Up();
  Run(3 * kSecond);
  ASSERT_TRUE(sink.started.has_value()) << "it was worth waiting for";
  EXPECT_EQ(sink.started->model_id, "model-old");
  ask.resume->model_id = "model-unknown";
  RecordingSink unknown;
  pipeline_->Start(ask, &unknown);
  Run(kSecond / 10);
  EXPECT_EQ(unknown.error->code, ApiCode::kConflict) << "at once: all have said";
}

TEST_F(PipelinePoolsTest, ModelsWithTheSameBundleShareItsText) {
  AddModel("model-old");
  AddModel("model-new");
  StartRouter();
  EXPECT_EQ(workers_[0]->bundle_fetches + workers_[1]->bundle_fetches, 1);
  const std::map<std::string, int> models = Models(30);
  EXPECT_EQ(models.size(), 2u);
}

TEST_F(PipelinePoolsTest, ABundleIsFetchedFromAnotherWorkerWhenOneCannotGiveIt) {
  AddWorker();
  AddWorker();
  // The first one names a digest that its bytes do not have.
  const std::string digest = Sha256(kFakeBundle);
  workers_[0]->options().bundle = "something else";
  workers_[0]->tamper_hello = [digest](pb::WorkerHello& hello) {
    hello.set_text_bundle_sha256(digest);
  };
  StartRouter();
  Run(3 * kSecond);
  EXPECT_EQ(RunOne(Ask("x")).text(), "abcde");
  EXPECT_EQ(workers_[1]->bundle_fetches, 1);
}

}  // namespace
}  // namespace quire
