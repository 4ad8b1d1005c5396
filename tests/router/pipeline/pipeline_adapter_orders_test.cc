// Orders of operators about adapters, from the pipeline to the workers and back, and what becomes
// of requests meanwhile.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

const std::string kFirstDigest(64, '1');
const std::string kSecondDigest(64, '2');

class PipelineAdapterOrdersTest : public PipelineTest {
 protected:
  FakeWorker& AddTaker(FakeWorkerOptions options = {}) {
    options.features.emplace_back("adapter");
    options.features.emplace_back("adapter_orders");
    return AddWorker(options);
  }
  static AdapterAsk LoadOf(const std::string& name, const std::string& base = "") {
    AdapterAsk ask;
    ask.order.name = name;
    ask.order.path = "/x";
    ask.base_model = base;
    return ask;
  }
  static AdapterAsk UnloadOf(const std::string& name) {
    AdapterAsk ask = LoadOf(name);
    ask.order.kind = AdapterOrder::Kind::kUnload;
    return ask;
  }
  // The error, where it cannot begin.
  std::optional<ApiError> Order(AdapterAsk ask) {
    ended_.reset();
    Result<std::unique_ptr<AdapterTask>> task = pipeline_->OrderAdapters(
        std::move(ask), [this](std::optional<ApiError> error) { ended_ = std::move(error); });
    if (!task.ok()) return task.error();
    task_ = std::move(task.value());
    Run(kMicrosPerMilli);
    return std::nullopt;
  }
  static std::vector<pb::AdapterOrder> Orders(const FakeWorker& worker) {
    std::vector<pb::AdapterOrder> orders;
    for (const pb::RouterFrame& frame : worker.heard) {
      if (frame.has_adapter_order()) orders.push_back(frame.adapter_order());
    }
    return orders;
  }
  using Names = std::vector<std::pair<std::string, std::string>>;
  void Tell(FakeWorker& worker, const Names& names, const std::vector<std::string>& held = {}) {
    pb::WorkerFrame frame;
    for (const auto& [name, digest] : names) {
      pb::ServedAdapter* adapter = frame.mutable_adapters_changed()->add_adapters();
      adapter->set_name(name);
      adapter->set_digest(digest);
      adapter->set_parent("fake");
    }
    for (const std::string& digest : held) frame.mutable_adapters_changed()->add_held(digest);
    frame.mutable_adapters_changed();
    worker.SendFrame(frame);
    Run(kMicrosPerMilli);
  }
  void Answer(FakeWorker& worker, pb::AdapterVerdict verdict, const std::string& message = "") {
    pb::WorkerFrame frame;
    frame.mutable_adapter_result()->set_number(Orders(worker).back().number());
    frame.mutable_adapter_result()->set_verdict(verdict);
    frame.mutable_adapter_result()->set_message(message);
    worker.SendFrame(frame);
    Run(kMicrosPerMilli);
  }
  static GenerateRequest AskFor(const std::string& model, int max_tokens = 5) {
    GenerateRequest ask = Ask("x", max_tokens);
    ask.model = model;
    return ask;
  }
  std::vector<std::string> Served() {
    std::vector<std::string> names;
    for (const ModelEntry& model : pipeline_->Models()) names.push_back(model.name);
    return names;
  }

  std::optional<std::optional<ApiError>> ended_;
  std::unique_ptr<AdapterTask> task_;
};

TEST_F(PipelineAdapterOrdersTest, AnOrderGoesToEveryWorkerAndTheTableFollows) {
  FakeWorker& one = AddTaker();
  FakeWorker& two = AddTaker();
  StartRouter();
  EXPECT_EQ(RunOne(AskFor("sql")).error->code, ApiCode::kNotFound);
  ASSERT_FALSE(Order(LoadOf("sql", "fake")).has_value());
  ASSERT_EQ(Orders(one).size(), 1u);
  ASSERT_EQ(Orders(two).size(), 1u);
  EXPECT_EQ(Orders(one)[0].path(), "/x");
  Tell(one, {{"sql", kFirstDigest}});
  Answer(one, pb::ADAPTER_DONE);
  EXPECT_FALSE(ended_.has_value()) << "one has not answered";
  Tell(two, {{"sql", kFirstDigest}});
  Answer(two, pb::ADAPTER_DONE);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_FALSE(ended_->has_value());
  EXPECT_EQ(Served(), (std::vector<std::string>{"fake", "sql"}));
  EXPECT_EQ(RunOne(AskFor("sql")).started->model_id, "model-a+" + kFirstDigest);
  ASSERT_FALSE(Order(UnloadOf("sql")).has_value());
  EXPECT_EQ(Orders(one).back().kind(), pb::AdapterOrder::UNLOAD);
  for (FakeWorker* worker : {&one, &two}) {
    Tell(*worker, {}, {kFirstDigest});
    Answer(*worker, pb::ADAPTER_DONE);
  }
  EXPECT_FALSE(ended_->has_value());
  EXPECT_EQ(Served(), std::vector<std::string>{"fake"});
  EXPECT_EQ(RunOne(AskFor("sql")).error->code, ApiCode::kNotFound);
}

TEST_F(PipelineAdapterOrdersTest, AStreamCarriesOnWhereItsOldContentIsHeld) {
  FakeWorker& one = AddTaker();
  StartRouter();
  Tell(one, {{"sql", kFirstDigest}});
  RecordingSink sink;
  GenerateRequest ask = AskFor("sql", 40);
  ask.streaming = true;
  pipeline_->Start(std::move(ask), &sink);
  Run(50 * kMicrosPerMilli);
  ASSERT_TRUE(sink.started.has_value());
  Tell(one, {{"sql", kSecondDigest}}, {kFirstDigest});
  EXPECT_EQ(RunOne(AskFor("sql")).started->model_id, "model-a+" + kSecondDigest);
  Run(20 * kSecond);
  EXPECT_TRUE(sink.Over());
  EXPECT_FALSE(sink.error.has_value());
  EXPECT_EQ(sink.started->model_id, "model-a+" + kFirstDigest);
  ExpectNothingLeft();
}

TEST_F(PipelineAdapterOrdersTest, WhatCannotBeginIsSaidAtOnce) {
  FakeWorker& worker = AddTaker();
  StartRouter();
  EXPECT_EQ(Order(LoadOf("fake"))->param, "lora_name");
  EXPECT_EQ(Order(LoadOf("sql", "fak"))->code, ApiCode::kNotFound);
  EXPECT_EQ(Order(LoadOf("sql", "fak"))->param, "base_model_name");
  EXPECT_EQ(Order(UnloadOf("sql"))->code, ApiCode::kNotFound);
  EXPECT_TRUE(Orders(worker).empty());
  worker.Down();
  Run(kSecond);
  EXPECT_EQ(Order(LoadOf("sql", "fake"))->code, ApiCode::kUnavailable);
}

TEST_F(PipelineAdapterOrdersTest, AWorkerWithoutThemAndOneThatIsLostAreNamed) {
  FakeWorker& taker = AddTaker();
  AddWorker({});
  StartRouter();
  ASSERT_FALSE(Order(LoadOf("sql")).has_value());
  taker.Down();
  Run(kSecond);
  ASSERT_TRUE(ended_.has_value() && ended_->has_value());
  const std::string& message = (*ended_)->message;
  EXPECT_NE(message.find("failed at 2 of 2 workers"), std::string::npos) << message;
  EXPECT_NE(message.find("--enable-lora"), std::string::npos) << message;
  EXPECT_NE(message.find("it was lost before it answered (worker worker-0)"), std::string::npos)
      << message;
}

TEST_F(PipelineAdapterOrdersTest, AChangeThatCannotBeTheWorkersEndsTheAttach) {
  FakeWorker& worker = AddTaker();
  StartRouter();
  Tell(worker, {{"fake", kFirstDigest}});
  EXPECT_EQ(Served(), std::vector<std::string>{"fake"});
  EXPECT_NE(pipeline_->Workers().at(0).problem.find("given twice"), std::string::npos)
      << pipeline_->Workers().at(0).problem;
}

}  // namespace
}  // namespace quire
