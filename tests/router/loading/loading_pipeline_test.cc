#include "router/loading/loading_pipeline.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "tests/router/support/fake_pipeline.h"

namespace quire {
namespace {

using serve::ModelState;
using serve::OrderKind;

// The pipeline behind, which serves one model once it is attached.
class Behind final : public FakePipeline {
 public:
  using FakePipeline::FakePipeline;
  std::vector<ModelEntry> Models() const override {
    std::vector<ModelEntry> models;
    if (attached) models = FakePipeline::Models();
    if (!models.empty()) models.front().name = serves;
    return models;
  }
  void WorkersNamed(const std::string&, std::vector<std::string> targets) override {
    named = std::move(targets);
    attached = !named.empty();
  }
  bool attached = false;
  std::string serves = "demo";
  std::vector<std::string> named;
};

class Sink final : public ResponseSink {
 public:
  void OnWaiting(const std::string& what) override { waits.push_back(what); }
  void OnStarted(const Started&) override { started = true; }
  void OnDelta(const Delta& delta) override { text += delta.text; }
  void OnChoiceEnd(const ChoiceEnd&) override {}
  void OnFinished(const Usage&) override { finished = true; }
  void OnError(const ApiError& what) override { error = what; }

  std::vector<std::string> waits;
  std::string text;
  bool started = false, finished = false;
  std::optional<ApiError> error;
};

class LoadingTest : public testing::Test {
 protected:
  explicit LoadingTest(LoadingOptions options = {})
      : behind_(world_.executor()),
        pipeline_(behind_, std::move(options),
                  {world_.executor(), logger_, metrics_,
                   [this](const serve::Order& order) { orders_.push_back(order); },
                   [](const std::vector<serve::WorkerPlace>&) {}}) {
    Say("demo", ModelState::kAbsent);
    Say("other", ModelState::kAbsent);
    Run(0);
  }
  void Say(const std::string& name, ModelState state, const std::string& error = "") {
    serve::ModelNews news;
    news.name = name;
    news.state = state;
    news.error = error;
    news.file_bytes = 2'500'000'000;
    if (state == ModelState::kReady) news.workers = {{"127.0.0.1:9", "127.0.0.1:8", "0"}};
    pipeline_.Heard(serve::News(news));
  }
  void Run(Micros time) {
    world_.RunUntil(world_.clock().Now() + time);
    pipeline_.CheckInvariants();
  }
  RequestId Ask(Sink& sink, const std::string& model = "demo") {
    GenerateRequest ask;
    ask.model = model;
    ask.prompt = TextPrompt{"x"};
    return pipeline_.Start(std::move(ask), &sink);
  }

  VirtualWorld world_{1};
  NullLogger logger_;
  Metrics metrics_;
  Behind behind_;
  std::vector<serve::Order> orders_;
  LoadingPipeline pipeline_;
};

TEST_F(LoadingTest, TheFirstRequestWaitsWhileItsModelLoads) {
  Sink sink;
  Ask(sink);
  Run(3 * kMicrosPerSecond + 1);
  ASSERT_EQ(orders_.size(), 1u);
  EXPECT_EQ(orders_[0].kind, OrderKind::kLoad);
  EXPECT_EQ(orders_[0].model, "demo");
  EXPECT_FALSE(sink.started);
  ASSERT_EQ(sink.waits.size(), 3u);
  EXPECT_EQ(sink.waits[2], "loading demo (2.5 GB), 3 s");
  EXPECT_TRUE(behind_.seen.empty());
  Say("demo", ModelState::kReady);
  Run(kMicrosPerSecond);
  EXPECT_TRUE(sink.finished);
  EXPECT_EQ(sink.text, "tok0 tok1 tok2");
  EXPECT_EQ(behind_.named, std::vector<std::string>{"127.0.0.1:9"});
  Sink next;
  Ask(next);
  Run(kMicrosPerSecond);
  EXPECT_TRUE(next.finished);
  EXPECT_TRUE(next.waits.empty());
  EXPECT_EQ(orders_.size(), 1u);
}

TEST_F(LoadingTest, AFailedLoadIsTheRequestsErrorAndTheNextOneTriesAgain) {
  Sink sink;
  Ask(sink);
  Run(0);
  Say("demo", ModelState::kAbsent, "its files are unusable");
  Run(0);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable);
  EXPECT_NE(sink.error->message.find("demo could not be loaded: its files are unusable"),
            std::string::npos);
  EXPECT_GT(sink.error->retry_after_ms, 0u);
  Sink next;
  const RequestId id = Ask(next);
  Run(0);
  EXPECT_EQ(orders_.size(), 2u);
  pipeline_.Cancel(id);
  Run(0);
}

TEST_F(LoadingTest, IdleModelsAreUnloadedAndTheirWorkersForgottenBefore) {
  Sink sink;
  Ask(sink);
  Run(0);
  Say("demo", ModelState::kReady);
  Run(kMicrosPerSecond);
  ASSERT_TRUE(sink.finished);
  EXPECT_EQ(pipeline_.MachineModels()[0].state, ModelState::kReady);
  EXPECT_TRUE(pipeline_.MachineModels()[0].until.has_value());
  Run(300 * kMicrosPerSecond);
  ASSERT_EQ(orders_.size(), 2u);
  EXPECT_EQ(orders_[1].kind, OrderKind::kUnload);
  EXPECT_TRUE(behind_.named.empty());
}

TEST_F(LoadingTest, AStreamKeepsItsModel) {
  behind_.mode = FakePipeline::Mode::kManual;
  Sink sink;
  const RequestId id = Ask(sink);
  Run(0);
  Say("demo", ModelState::kReady);
  Run(1000 * kMicrosPerSecond);
  EXPECT_EQ(orders_.size(), 1u);
  std::optional<std::optional<ApiError>> ended;
  auto task = pipeline_.Unload("demo", [&](std::optional<ApiError> error) { ended = error; });
  Run(0);
  ASSERT_TRUE(ended && *ended);
  EXPECT_EQ((*ended)->code, ApiCode::kConflict);
  pipeline_.Cancel(id);
  Run(300 * kMicrosPerSecond);
  EXPECT_EQ(orders_.back().kind, OrderKind::kUnload);
}

TEST_F(LoadingTest, ARequestWaitsNoLongerThanItMay) {
  Sink sink, hasty;
  Ask(sink);
  GenerateRequest ask;
  ask.model = "demo";
  ask.timeout_ms = 2000;
  pipeline_.Start(std::move(ask), &hasty);
  Run(2 * kMicrosPerSecond);
  ASSERT_TRUE(hasty.error.has_value());
  EXPECT_EQ(hasty.error->code, ApiCode::kUnavailable);
  EXPECT_FALSE(sink.error.has_value());
  Run(298 * kMicrosPerSecond);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_GT(sink.error->retry_after_ms, 0u);
}

struct ShortQueue : LoadingTest {
  ShortQueue() : LoadingTest({.shelf = {}, .max_held = 2}) {}
};
TEST_F(ShortQueue, AtTheLimitRequestsWaitAndOneMoreIsRefusedAndCounted) {
  Sink sinks[3];
  for (Sink& sink : sinks) Ask(sink);
  Run(0);
  EXPECT_EQ(pipeline_.held(), 2u);
  EXPECT_FALSE(sinks[1].error.has_value());
  ASSERT_TRUE(sinks[2].error.has_value());
  EXPECT_EQ(sinks[2].error->code, ApiCode::kUnavailable);
  EXPECT_NE(metrics_.Render().find("quire_router_load_queue_refusals_total 1\n"),
            std::string::npos);
}

struct OneLoaded : LoadingTest {
  OneLoaded() : LoadingTest({.shelf = {.max_loaded = 1}}) {}
};
TEST_F(OneLoaded, ModelsAtTheLimitStayAndOneMoreTakesAnIdlePlace) {
  Sink sink, second;
  Ask(sink);
  Run(0);
  Say("demo", ModelState::kReady);
  Run(kMicrosPerSecond);
  Ask(second, "other");
  Run(0);
  ASSERT_EQ(orders_.size(), 2u);
  EXPECT_EQ(orders_[1].kind, OrderKind::kUnload);
  EXPECT_NE(metrics_.Render().find("quire_router_models_loaded 1\n"), std::string::npos);
  Say("demo", ModelState::kAbsent);
  Run(0);
  ASSERT_EQ(orders_.size(), 3u);
  EXPECT_EQ(orders_[2].model, "other");
}

TEST_F(LoadingTest, UnknownNamesAreToldWhatThereIs) {
  Sink sink, unnamed;
  Ask(sink, "llama");
  Ask(unnamed, "");
  Run(0);
  ASSERT_TRUE(sink.error && unnamed.error);
  EXPECT_EQ(sink.error->code, ApiCode::kNotFound);
  EXPECT_NE(sink.error->message.find("served are: demo, other"), std::string::npos);
  EXPECT_EQ(unnamed.error->code, ApiCode::kInvalidArgument);
}

TEST_F(LoadingTest, AnAdapterIsServedWithItsModel) {
  ModelEntry adapter{"sql", "id-of-demo", 2048, 1, 1700000000};
  adapter.parent = "demo";
  behind_.adapters = {adapter};
  Say("demo", ModelState::kReady);
  Run(0);
  for (const char* name : {"sql", "demo:sql"}) {
    EXPECT_EQ(pipeline_.MachineName(name), "demo") << name;
    Sink sink;
    Ask(sink, name);
    Run(kMicrosPerSecond);
    ASSERT_FALSE(behind_.seen.empty()) << name;
    EXPECT_EQ(behind_.seen.back().model, name);
  }
  const std::vector<ModelEntry> models = pipeline_.Models();
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[1].name, "sql");
  EXPECT_EQ(models[1].state, "ready");
  Sink unknown;
  Ask(unknown, "demo:sqk");
  Run(0);
  ASSERT_TRUE(unknown.error.has_value());
  EXPECT_EQ(unknown.error->code, ApiCode::kNotFound);
}

TEST_F(LoadingTest, AModelIsLoadedForItsText) {
  EXPECT_EQ(pipeline_.TextOf("none").error().code, ApiCode::kNotFound);
  const ApiError absent = pipeline_.TextOf("demo").error();
  EXPECT_EQ(absent.code, ApiCode::kUnavailable);
  EXPECT_EQ(absent.message, "model demo is being loaded; come again");
  EXPECT_GT(absent.retry_after_ms, 0u);
  Run(kMicrosPerSecond);
  ASSERT_EQ(orders_.size(), 1u);
  EXPECT_EQ(orders_[0].model, "demo");
  Say("demo", ModelState::kReady);
  Run(kMicrosPerSecond);
  EXPECT_TRUE(pipeline_.TextOf("demo").ok());
}

TEST_F(LoadingTest, ModelsThatAreNotLoadedAreListedWithTheirState) {
  const std::vector<ModelEntry> models = pipeline_.Models();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].state, "absent");
  EXPECT_TRUE(pipeline_.Ready());
  EXPECT_EQ(pipeline_.MachineName("demo:latest"), "demo");
  EXPECT_EQ(pipeline_.MachineName("nobody"), "");
}

TEST_F(LoadingTest, TheKeptModelHasItsWorkersNamesAlsoBesideOthers) {
  behind_.serves = "mine";
  serve::ModelNews kept;
  kept.name = "folder";
  kept.state = ModelState::kReady;
  kept.kept = true;
  kept.workers = {{"127.0.0.1:9", "127.0.0.1:8", "0"}};
  pipeline_.Heard(serve::News(kept));
  Run(0);
  EXPECT_EQ(pipeline_.MachineName("mine"), "folder");
  std::string listed;
  for (const ModelEntry& entry : pipeline_.Models()) {
    listed += entry.name + " " + std::string(entry.state) + ", ";
  }
  EXPECT_EQ(listed, "mine ready, demo absent, other absent, ");
  Sink sink;
  Ask(sink, "mine");
  Run(0);
  EXPECT_EQ(behind_.seen.size(), 1u) << "it does not wait for a worker of another name";
  // The pipeline behind may know the name of a removed model for a while.
  behind_.serves = "other";
  serve::ModelNews gone;
  gone.name = "other";
  gone.gone = true;
  pipeline_.Heard(serve::News(gone));
  EXPECT_EQ(pipeline_.MachineName("other"), "");
  gone.name = "demo";
  pipeline_.Heard(serve::News(gone));
  Sink removed;
  Ask(removed, "other");
  Run(0);
  ASSERT_TRUE(removed.error.has_value());
  EXPECT_EQ(removed.error->code, ApiCode::kNotFound);
  Say("other", ModelState::kAbsent);
  EXPECT_EQ(pipeline_.MachineName("other"), "other") << "it was pulled again";
}

TEST_F(LoadingTest, SleepUnloadsEverythingAndWakeUpLoadsItAgain) {
  Sink sink;
  Ask(sink);
  Run(0);
  Say("demo", ModelState::kReady);
  Run(kMicrosPerSecond);
  int ends = 0;
  const auto done = [&](std::optional<ApiError> error) { ends += error ? 100 : 1; };
  auto sleep = pipeline_.Sleep(done);
  Run(0);
  EXPECT_EQ(ends, 0);
  Say("demo", ModelState::kAbsent);
  Run(0);
  EXPECT_EQ(ends, 1);
  EXPECT_TRUE(pipeline_.Asleep());
  auto wake = pipeline_.WakeUp(done);
  Run(0);
  EXPECT_EQ(orders_.back().kind, OrderKind::kLoad);
  Say("demo", ModelState::kReady);
  Run(kMicrosPerSecond);
  EXPECT_EQ(ends, 2);
  EXPECT_FALSE(pipeline_.Asleep());
}

TEST_F(LoadingTest, JobsAtTheLimitRunAndOneMoreIsRefusedAndAPullEndsWithItsClient) {
  std::vector<std::unique_ptr<ControlTask>> tasks;
  std::optional<ApiError> refused;
  std::vector<serve::JobNews> news;
  for (size_t i = 0; i < serve::kMaxJobs; ++i) {
    tasks.push_back(pipeline_.Pull(
        "hf:a/b", [&](const serve::JobNews& one) { news.push_back(one); }, refused));
    ASSERT_FALSE(refused.has_value());
  }
  pipeline_.Pull(
      "hf:a/b", [](const serve::JobNews&) {}, refused);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ApiCode::kUnavailable);
  EXPECT_NE(metrics_.Render().find("quire_router_model_jobs_refused_total 1\n"), std::string::npos);
  pipeline_.Heard(serve::News(serve::JobNews{orders_[0].job, "", 1, 1, true, ""}));
  EXPECT_EQ(news.size(), 1u);
  tasks.clear();
  EXPECT_EQ(orders_.size(), 2 * serve::kMaxJobs - 1) << "each other pull is cancelled";
  EXPECT_EQ(orders_.back().kind, OrderKind::kCancel);
}

class SmallPulls : public LoadingTest {
 protected:
  SmallPulls() : LoadingTest({.shelf = {}, .max_pull_bytes = 1000}) {}
};

// `quire pull` holds the size to it: tests/supply.
TEST_F(SmallPulls, ThePullGetsItsLimitAndOneThatIsTooLargeIsCounted) {
  std::optional<ApiError> refused;
  std::vector<serve::JobNews> news;
  const auto hear = [&](const serve::JobNews& one) { news.push_back(one); };
  const auto task = pipeline_.Pull("hf:a/b", hear, refused);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(orders_.back().most_bytes, 1000);
  EXPECT_NE(metrics_.Render().find("quire_router_model_jobs 1\n"), std::string::npos);
  serve::JobNews end;
  end.job = orders_.back().job;
  end.done = true;
  end.error = "has 1001 bytes";
  end.code = static_cast<int>(absl::StatusCode::kResourceExhausted);
  pipeline_.Heard(serve::News(end));
  ASSERT_EQ(news.size(), 1u);
  const std::string text = metrics_.Render();
  EXPECT_NE(text.find("quire_router_pulls_too_large_total 1\n"), std::string::npos);
  EXPECT_NE(text.find("quire_router_model_jobs 0\n"), std::string::npos);
  const auto other = pipeline_.Remove("demo", hear, refused);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(orders_.back().most_bytes, 0);
}

TEST_F(LoadingTest, DrainingEndsWhatWaits) {
  Sink sink;
  Ask(sink);
  Run(0);
  pipeline_.StartDraining();
  Run(0);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(pipeline_.LiveRequests(), 0u);
  EXPECT_FALSE(pipeline_.Ready());
}

}  // namespace
}  // namespace quire
