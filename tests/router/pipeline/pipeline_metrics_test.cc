// What an operator reads of the requests that went through, of failovers and of each worker.
#include "router/pipeline/serving_metrics.h"
#include "router/routing/policy.h"
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

class PipelineMetricsTest : public PipelineTest {
 protected:
  // The value of a series; -1 where there is none.
  double Value(const std::string& series) {
    const std::string text = "\n" + metrics_.Render();
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 2));
  }
};

TEST_F(PipelineMetricsTest, TimesAreCountedByModelAndLengthOfPrompt) {
  AddWorker();
  StartRouter();
  RunOne(Ask("x", 5));
  const std::string labels = "{model=\"fake\",prompt_tokens=\"0-255\"}";
  EXPECT_EQ(Value("quire_router_time_to_first_token_seconds_count" + labels), 1);
  EXPECT_GE(Value("quire_router_inter_token_gap_seconds_count" + labels), 1);
  EXPECT_EQ(Value("quire_router_requests_total{model=\"fake\",outcome=\"finished\"}"), 1);
  EXPECT_EQ(Value("quire_router_stream_failures_total{model=\"fake\"}"), 0);
  RunOne(Ask(std::string(300, 'x'), 5));
  EXPECT_EQ(Value("quire_router_time_to_first_token_seconds_count{model=\"fake\",prompt_tokens="
                  "\"256-1023\"}"),
            1);
  EXPECT_EQ(Value("quire_router_time_to_first_token_seconds_count" + labels), 1);
  EXPECT_GE(Value("quire_router_relayed_frames_total"), 5);
}

TEST_F(PipelineMetricsTest, AFailoverIsCountedByItsCauseWithItsGap) {
  AddWorker();
  AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  Busy().Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(Value("quire_router_failover_gap_seconds_count{cause=\"lost\"}"), 1);
  EXPECT_GT(Value("quire_router_failover_gap_seconds_sum{cause=\"lost\"}"), 0);
  EXPECT_EQ(Value("quire_router_failover_gap_seconds_count{cause=\"drained\"}"), 0);
  double decisions = 0;
  for (const std::string_view reason : RouteReasons(Policies())) {
    decisions += Value("quire_router_routing_decisions_total{policy=\"prefix-aware\",reason=\"" +
                       std::string(reason) + "\"}");
  }
  EXPECT_EQ(decisions, 2);
}

TEST_F(PipelineMetricsTest, AFailoverIsFeltByEveryChoice) {
  FakeWorkerOptions options;
  options.features = {"resume", "choices"};
  options.max_choices = 4;
  AddWorker(options);
  AddWorker(options);
  StartRouter();
  RecordingSink sink;
  GenerateRequest ask = Ask("x", 50);
  ask.sampling.n = 3;
  pipeline_->Start(ask, &sink);
  Run(200 * kMicrosPerMilli);
  Busy().Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.usage.has_value());
  EXPECT_EQ(Value("quire_router_failover_gap_seconds_count{cause=\"lost\"}"), 3);
}

TEST_F(PipelineMetricsTest, AStreamThatBreaksOffIsCounted) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x", 50), &sink);
  Run(200 * kMicrosPerMilli);
  worker.Down();
  Run(10 * kSecond);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(Value("quire_router_stream_failures_total{model=\"fake\"}"), 1);
  EXPECT_EQ(Value("quire_router_requests_total{model=\"fake\",outcome=\"failed\"}"), 1);
}

TEST_F(PipelineMetricsTest, EveryWorkerHasItsSeriesAsLongAsItIsKnown) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  pipeline_->WorkersNamed("file", {"worker-9:9000"});
  Run(2 * kSecond);
  EXPECT_EQ(Value("quire_router_worker_ready{worker=\"worker-0:9000\"}"), 1);
  EXPECT_EQ(Value("quire_router_worker_ready{worker=\"worker-9:9000\"}"), 0);
  worker.Down();
  pipeline_->WorkersNamed("file", {});
  Run(120 * kSecond);
  EXPECT_EQ(Value("quire_router_worker_ready{worker=\"worker-0:9000\"}"), 0);
  EXPECT_EQ(Value("quire_router_worker_ready{worker=\"worker-9:9000\"}"), -1);
}

// Load is compared among the workers of one model; the series of a target whose worker serves
// another model now is no longer that of the model before.
TEST_F(PipelineMetricsTest, AWorkersAttemptsNameItsModel) {
  const auto attempts = [this](const std::string& model) {
    return Value("quire_router_worker_attempts{worker=\"worker-0:9000\",model=\"" + model + "\"}");
  };
  FakeWorker& worker = AddWorker();
  StartRouter();
  Run(2 * kSecond);
  EXPECT_EQ(attempts("unknown"), -1) << "it has said what it serves";
  EXPECT_EQ(attempts("fake"), 0);
  RecordingSink sink;
  pipeline_->Start(Ask("x", 500), &sink);
  Run(2 * kSecond);
  EXPECT_EQ(attempts("fake"), 1);
  EXPECT_EQ(Value("quire_router_worker_ready{worker=\"worker-0:9000\"}"), 1);
  worker.Down();
  Run(10 * kSecond);
  EXPECT_EQ(attempts("fake"), 0) << "what it served last";
}

TEST_F(PipelineMetricsTest, EveryModelHasItsReadyWorkersAlsoWithoutAny) {
  const auto ready = [this](const std::string& model) {
    return Value("quire_router_model_ready_workers{model=\"" + model + "\"}");
  };
  StartRouter();
  EXPECT_EQ(ready("unknown"), 0) << "nobody has come yet, and an alert can see it";
  EXPECT_EQ(Value("quire_router_ready_without_workers"), 0);
  FakeWorkerOptions other;
  other.model_id = "model-b";
  other.names = {"b", "b-too"};
  FakeWorker& worker = AddWorker();
  AddWorker();
  FakeWorker& of_other = AddWorker(other);
  std::vector<std::string> targets;
  for (const auto& each : workers_) targets.push_back(each->options().target);
  pipeline_->WorkersNamed("file", targets);
  Run(3 * kSecond);
  EXPECT_EQ(ready("fake"), 2);
  EXPECT_EQ(ready("b"), 1);
  EXPECT_EQ(ready("b-too"), 1);
  EXPECT_EQ(ready("unknown"), -1) << "a model is known";
  worker.Down();
  of_other.Down();
  pipeline_->WorkersNamed("file", {"worker-1:9000"});
  Run(120 * kSecond);
  EXPECT_EQ(ready("fake"), 1);
  EXPECT_EQ(ready("b"), 0) << "its workers are forgotten, its name is not";
}

TEST_F(PipelineMetricsTest, AModelCountsAllThatServeItsName) {
  FakeWorkerOptions second;
  second.model_id = "model-new";
  AddWorker();
  FakeWorker& old_worker = *workers_.front();
  AddWorker(second);
  PipelineOptions options;
  options.ready_without_workers = true;
  StartRouter(options);
  EXPECT_EQ(Value("quire_router_ready_without_workers"), 1);
  EXPECT_EQ(Value("quire_router_model_ready_workers{model=\"fake\"}"), 2);
  old_worker.Down();
  Run(3 * kSecond);
  EXPECT_EQ(Value("quire_router_model_ready_workers{model=\"fake\"}"), 1);
}

TEST(ServingMetricsTest, ModelsBeyondTheLimitShareALabel) {
  Metrics all;
  ServingMetrics metrics(all);
  for (size_t i = 0; i <= kMaxModelLabels; ++i) {
    metrics.RequestEnded("model-" + std::to_string(i), RequestEnd::kFinished, true);
    metrics.Streams("model-" + std::to_string(i), 5000).gap_seconds.Observe(1);
  }
  // Served names like these must not be taken for two series.
  for (const char* name : {"other", "", "unknown", "one more"}) {
    metrics.RequestEnded(name, RequestEnd::kFailed, false);
    metrics.Streams(name, 0);
  }
  const std::string text = all.Render();
  const auto shows = [&](const std::string& line) {
    return text.find("\n" + line + "\n") != std::string::npos;
  };
  EXPECT_TRUE(shows("quire_router_requests_total{model=\"model-63\",outcome=\"finished\"} 1"));
  EXPECT_EQ(text.find("model=\"model-64\""), std::string::npos);
  EXPECT_TRUE(shows("quire_router_requests_total{model=\"other\",outcome=\"finished\"} 1"));
  EXPECT_TRUE(shows("quire_router_requests_total{model=\"other\",outcome=\"failed\"} 2"));
  EXPECT_TRUE(shows("quire_router_requests_total{model=\"unknown\",outcome=\"failed\"} 2"));
  EXPECT_TRUE(
      shows("quire_router_inter_token_gap_seconds_count{model=\"other\",prompt_tokens="
            "\"4096-16383\"} 1"));
}

}  // namespace
}  // namespace quire
