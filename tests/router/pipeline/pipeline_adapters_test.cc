// Requests for adapters: names, where they go, where they go on, what is said when they cannot.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

const std::string kOne(64, '1');
const std::string kTwo(64, '2');

class PipelineAdaptersTest : public PipelineTest {
 protected:
  struct Held {
    std::string name;
    std::string digest;
  };
  FakeWorker& AddHolder(const std::vector<Held>& held, FakeWorkerOptions options = {}) {
    if (!held.empty()) options.features.emplace_back("adapter");
    FakeWorker& worker = AddWorker(options);
    Hold(worker, held);
    return worker;
  }
  static void Hold(FakeWorker& worker, const std::vector<Held>& held) {
    worker.tamper_hello = [held](pb::WorkerHello& hello) {
      for (const Held& one : held) {
        pb::ServedAdapter* adapter = hello.add_adapters();
        adapter->set_name(one.name);
        adapter->set_digest(one.digest);
        adapter->set_parent(hello.served_names(0));
        adapter->set_rank(8);
      }
    };
  }
  static GenerateRequest AskFor(const std::string& model, int max_tokens = 5) {
    GenerateRequest ask = Ask("x", max_tokens);
    ask.model = model;
    return ask;
  }
  // What the worker was sent, by request: digests.
  static std::vector<std::string> Sent(const FakeWorker& worker) {
    std::vector<std::string> digests;
    for (const pb::RouterFrame& frame : worker.heard) {
      if (frame.has_submit()) digests.push_back(frame.submit().adapter());
    }
    return digests;
  }
};

TEST_F(PipelineAdaptersTest, AnAdapterIsAskedForByItsNameOrBehindItsModels) {
  FakeWorker& worker = AddHolder({{"sql", kOne}, {"legal", kTwo}});
  PipelineOptions options;
  options.pool_rules = ReadPoolRules({{"gpt-4=fake", "db=sql"}, {}, {}}).value();
  StartRouter(options);
  for (const char* name : {"sql", "fake:sql", "gpt-4:sql", "db", "fake:db"}) {
    const RecordingSink sink = RunOne(AskFor(name));
    ASSERT_TRUE(sink.started.has_value()) << name << ": " << sink.error->message;
    EXPECT_EQ(sink.started->model, name) << "as it was asked for";
    EXPECT_EQ(sink.started->model_id, "model-a+" + kOne);
  }
  EXPECT_EQ(Sent(worker), std::vector<std::string>(5, kOne));
  EXPECT_EQ(RunOne(AskFor("fake")).started->model_id, "model-a");
  EXPECT_EQ(RunOne(AskFor("")).started->model_id, "model-a") << "no name is the model alone";
  EXPECT_EQ(Sent(worker).back(), "");
  const auto& features = worker.heard[1].submit().required_features();
  EXPECT_TRUE(std::count(features.begin(), features.end(), "adapter") == 1);
  EXPECT_EQ(records_.all.front().adapter, kOne);
  EXPECT_EQ(records_.all.front().model_id, "model-a");
  EXPECT_NE(RequestRecordJson(records_.all.front(), 1).find("\"adapter\":\"" + kOne),
            std::string::npos);
  EXPECT_EQ(RequestRecordJson(records_.all.back(), 1).find("\"adapter\""), std::string::npos);
}

TEST_F(PipelineAdaptersTest, ModelsListThemWithTheirParent) {
  AddHolder({{"sql", kOne}});
  AddHolder({});
  StartRouter();
  const std::vector<ModelEntry> models = pipeline_->Models();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].name, "fake");
  EXPECT_EQ(models[0].parent, "");
  EXPECT_EQ(models[0].workers_ready, 2u);
  EXPECT_EQ(models[1].name, "sql");
  EXPECT_EQ(models[1].parent, "fake");
  EXPECT_EQ(models[1].adapter, kOne);
  EXPECT_EQ(models[1].workers_ready, 1u) << "those that hold it";
  EXPECT_EQ(models[1].model_ids, std::vector<std::string>{"model-a"});
  const std::string metrics = metrics_.Render();
  EXPECT_NE(metrics.find("quire_router_model_ready_workers{model=\"sql\"} 1"), std::string::npos);
}

TEST_F(PipelineAdaptersTest, AnUnknownOneIsNotFoundAndTheNearestNameIsSaid) {
  AddHolder({{"sql-expert", kOne}});
  AddHolder({{"other", kTwo}}, [] {
    FakeWorkerOptions options;
    options.model_id = "model-b";
    options.names = {"second"};
    return options;
  }());
  StartRouter();
  const std::pair<const char*, const char*> asked[] = {
      {"sql-exprt", "the nearest name is sql-expert"},
      {"fake:sql-expect", "the nearest name is fake:sql-expert"},
      {"fake:other", "second:other"},  // another model's
      {"nobody", "fake, sql-expert, fake:sql-expert"},
      {"fake:", "is not served"},
      {":sql-expert", "is not served"},
      {"fake:fake", "is not served"},
  };
  for (const auto& [name, needle] : asked) {
    const RecordingSink sink = RunOne(AskFor(name));
    ASSERT_TRUE(sink.error.has_value()) << name;
    EXPECT_EQ(sink.error->code, ApiCode::kNotFound) << name;
    EXPECT_EQ(sink.error->param, "model");
    EXPECT_NE(sink.error->message.find(needle), std::string::npos) << sink.error->message;
  }
}

TEST_F(PipelineAdaptersTest, RequestsGoOnlyWhereTheirAdapterIs) {
  FakeWorker& plain = AddHolder({});
  FakeWorker& one = AddHolder({{"sql", kOne}});
  FakeWorker& two = AddHolder({{"legal", kTwo}});
  StartRouter();
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(RunOne(AskFor("sql"), 200 * kMicrosPerMilli).usage.has_value());
    EXPECT_TRUE(RunOne(AskFor("legal"), 200 * kMicrosPerMilli).usage.has_value());
  }
  EXPECT_TRUE(Sent(plain).empty());
  EXPECT_EQ(Sent(one), std::vector<std::string>(6, kOne));
  EXPECT_EQ(Sent(two), std::vector<std::string>(6, kTwo));
}

TEST_F(PipelineAdaptersTest, AnAnswerGoesOnAtTheSameDigestOnly) {
  FakeWorker& first = AddHolder({{"sql", kOne}});
  FakeWorker& other = AddHolder({{"sql", kTwo}});
  FakeWorker& same = AddHolder({{"sql-too", kOne}});  // the name does not matter
  other.Down();
  same.Down();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(AskFor("sql", 1500), &sink);
  Run(200 * kMicrosPerMilli);
  ASSERT_TRUE(sink.started.has_value());
  other.Up();
  same.Up();
  Run(6 * kSecond);
  ASSERT_FALSE(sink.Over());
  first.Down();
  Run(20 * kSecond);
  EXPECT_TRUE(sink.usage.has_value());
  EXPECT_EQ(sink.ids.at(0).size(), 1500u);
  EXPECT_TRUE(Sent(other).empty()) << "another adapter of the same name";
  EXPECT_EQ(Sent(same), std::vector<std::string>{kOne});
}

TEST_F(PipelineAdaptersTest, WithoutAnotherHolderAnAnswerEndsRatherThanGoOnWithoutIt) {
  FakeWorker& first = AddHolder({{"sql", kOne}});
  FakeWorker& plain = AddHolder({});
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(AskFor("sql", 200), &sink);
  Run(200 * kMicrosPerMilli);
  ASSERT_TRUE(sink.started.has_value());
  first.Down();
  Run(5 * kSecond);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable);
  EXPECT_TRUE(Sent(plain).empty());
  EXPECT_EQ(RunOne(AskFor("sql")).error->code, ApiCode::kUnavailable) << "known, and away";
  EXPECT_TRUE(RunOne(AskFor("fake")).usage.has_value()) << "the model serves on";
}

TEST_F(PipelineAdaptersTest, AClientGoesOnWithItsAnswerByModelAndDigest) {
  AddHolder({{"sql", kOne}});
  AddHolder({{"sql", kTwo}});
  StartRouter();
  for (const std::string& digest : {kOne, kTwo}) {
    GenerateRequest ask = AskFor("sql", 3);
    ask.resume = ResumeRequest{1, 1, "model-a+" + digest, {{'a'}}};
    RecordingSink sink;
    sink.base = 1;
    pipeline_->Start(ask, &sink);
    Run(kSecond);
    ASSERT_TRUE(sink.started.has_value());
    EXPECT_EQ(sink.started->model_id, "model-a+" + digest);
  }
  GenerateRequest ask = AskFor("sql", 3);
  for (const char* begun_by : {"model-a", "model-a+3333", "model-b"}) {
    ask.resume = ResumeRequest{1, 1, begun_by, {{'a'}}};
    const RecordingSink sink = RunOne(ask);
    ASSERT_TRUE(sink.error.has_value()) << begun_by;
    EXPECT_EQ(sink.error->code,
              begun_by == std::string("model-a") ? ApiCode::kUnavailable : ApiCode::kConflict)
        << begun_by;
  }
}

TEST_F(PipelineAdaptersTest, AWorkerThatHasLostItIsNotTheClientsFault) {
  FakeWorker& worker = AddHolder({{"sql", kOne}});
  worker.refuse = [](const pb::Submit& submit, pb::Refused* refused) {
    if (submit.adapter().empty()) return false;
    refused->set_code(pb::NOT_READY);
    refused->set_field("adapter");
    refused->set_message("adapter: this worker does not hold it");
    return true;
  };
  StartRouter();
  const RecordingSink sink = RunOne(AskFor("sql"), 30 * kSecond);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable) << sink.error->message;
}

}  // namespace
}  // namespace quire
