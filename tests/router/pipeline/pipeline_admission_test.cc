// Waiting for a turn: fair order, quotas, deadlines, empty pools, who goes first.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

class PipelineAdmissionTest : public PipelineTest {
 protected:
  // A worker that takes one submit at a time.
  FakeWorkerOptions Narrow() {
    FakeWorkerOptions options;
    options.max_waiting = 1;
    return options;
  }
  GenerateRequest AskAs(const std::string& tenant, const std::string& id) {
    GenerateRequest ask = Ask("x", 2);
    TenantProfile profile;
    profile.name = tenant;
    ask.tenant = std::make_shared<const TenantProfile>(profile);
    ask.request_id = id;
    return ask;
  }
  RequestId Start(GenerateRequest ask) {
    sinks_.push_back(std::make_unique<RecordingSink>());
    return pipeline_->Start(std::move(ask), sinks_.back().get());
  }
  // In the order in which the worker got them.
  static std::vector<std::string> Submitted(const FakeWorker& worker) {
    std::vector<std::string> ids;
    for (const pb::RouterFrame& frame : worker.heard) {
      if (frame.has_submit()) ids.push_back(frame.submit().request_id());
    }
    return ids;
  }
  bool Says(const std::string& line) {
    const std::string text = metrics_.Render();
    return text.find(line) != std::string::npos || (ADD_FAILURE() << line << " is not in\n"
                                                                  << text,
                                                    false);
  }

  std::vector<std::unique_ptr<RecordingSink>> sinks_;
};

TEST_F(PipelineAdmissionTest, RequestsLeaveTheQueueInTurnsOfTheirTenants) {
  FakeWorker& worker = AddWorker(Narrow());
  StartRouter();
  worker.frozen = true;
  for (int i = 0; i < 6; ++i) Start(AskAs("many", "many-" + std::to_string(i)));
  Run(100 * kMicrosPerMilli);
  for (int i = 0; i < 2; ++i) Start(AskAs("few", "few-" + std::to_string(i)));
  Run(2 * kSecond);
  EXPECT_EQ(Submitted(worker), std::vector<std::string>{"many-0"}) << "one unanswered submit";
  EXPECT_TRUE(
      Says("quire_router_queued_requests{model=\"fake\",model_id=\"model-a\","
           "priority=\"normal\"} 7"));
  pipeline_->CheckInvariants();
  worker.frozen = false;
  Run(3 * kSecond);
  EXPECT_EQ(Submitted(worker), (std::vector<std::string>{"many-0", "few-0", "many-1", "few-1",
                                                         "many-2", "many-3", "many-4", "many-5"}));
  for (const auto& sink : sinks_) EXPECT_EQ(sink->text(), "ab");
  EXPECT_TRUE(
      Says("quire_router_queued_requests{model=\"fake\",model_id=\"model-a\","
           "priority=\"normal\"} 0"));
  EXPECT_TRUE(Says("quire_router_admitted_requests_total 8"));
  ExpectNothingLeft();
}

TEST_F(PipelineAdmissionTest, PrefillAheadAtTheLimitPassesAndOneTokenMoreWaitsAndIsCounted) {
  FakeWorker& worker = AddWorker();
  uint64_t ahead = 900;
  worker.tamper = [&ahead](pb::Step& step) {
    step.mutable_load()->set_waiting_requests(1);
    step.mutable_load()->set_running_prefill_tokens(ahead);
  };
  PipelineOptions options;
  options.limits.max_prefill_ahead = 1000;
  StartRouter(options);
  const auto prompt_of = [this](size_t tokens, const std::string& id) {
    GenerateRequest ask = AskAs("a", id);
    ask.prompt = TokenPrompt{std::vector<TokenId>(tokens, 'x')};
    return ask;
  };
  Start(prompt_of(100, "at the limit"));
  Run(kSecond);
  EXPECT_EQ(sinks_[0]->text(), "ab");
  EXPECT_TRUE(Says("quire_router_prefill_ahead_waits_total 0"));
  Start(prompt_of(101, "one more"));
  Run(kSecond);
  EXPECT_EQ(Submitted(worker), std::vector<std::string>{"at the limit"});
  EXPECT_TRUE(Says("quire_router_prefill_ahead_waits_total 1")) << "once, however often it asks";
  ahead = 899;
  Run(kSecond);
  EXPECT_EQ(sinks_[1]->text(), "ab");
  EXPECT_TRUE(Says("quire_router_prefill_ahead_waits_total 1"));
  ExpectNothingLeft();
}

TEST_F(PipelineAdmissionTest, UrgentOnesGoFirstAsFarAsTheirTenantMay) {
  FakeWorker& worker = AddWorker(Narrow());
  StartRouter();
  worker.frozen = true;
  Start(AskAs("a", "running"));
  Run(100 * kMicrosPerMilli);
  GenerateRequest capped = AskAs("capped", "capped");
  TenantProfile profile = *capped.tenant;
  profile.highest_priority = 3;
  capped.tenant = std::make_shared<const TenantProfile>(profile);
  capped.priority = -9;
  Start(std::move(capped));
  GenerateRequest late = AskAs("a", "late");
  late.priority = 1;
  Start(std::move(late));
  Run(100 * kMicrosPerMilli);
  worker.frozen = false;
  Run(kSecond);
  EXPECT_EQ(Submitted(worker), (std::vector<std::string>{"running", "late", "capped"}));
  EXPECT_EQ(worker.heard.back().submit().priority(), 3) << "the worker is told the same";
}

TEST_F(PipelineAdmissionTest, WhoLeavesTheQueueIsGoneAtOnce) {
  FakeWorker& worker = AddWorker(Narrow());
  StartRouter();
  worker.frozen = true;
  Start(AskAs("a", "running"));
  GenerateRequest hasty = AskAs("a", "hasty");
  hasty.timeout_ms = 300;
  Start(std::move(hasty));
  const RequestId leaver = Start(AskAs("a", "leaver"));
  Run(250 * kMicrosPerMilli);
  pipeline_->Cancel(leaver);
  EXPECT_EQ(pipeline_->LiveRequests(), 2u);
  Run(50 * kMicrosPerMilli);
  ASSERT_TRUE(sinks_[1]->error.has_value());
  EXPECT_EQ(sinks_[1]->error->code, ApiCode::kDeadlineExceeded);
  EXPECT_EQ(pipeline_->LiveRequests(), 1u);
  worker.frozen = false;
  Run(kSecond);
  EXPECT_EQ(Submitted(worker), std::vector<std::string>{"running"});
  ExpectNothingLeft();
}

TEST_F(PipelineAdmissionTest, NothingIsTokenisedForWhoHasLeft) {
  AddWorker();
  StartRouter();
  const RequestId leaver = Start(AskAs("a", "leaver"));
  Run(0);  // its prompt is in the background's queue
  pipeline_->Cancel(leaver);
  Run(kSecond);
  EXPECT_EQ(text_->encodes, 0);
  EXPECT_TRUE(RunOne(AskAs("a", "stayer"), kSecond).usage.has_value());
  EXPECT_EQ(text_->encodes, 1);
}

TEST_F(PipelineAdmissionTest, AFullQueueIsOursAndAQuotaIsTheirs) {
  FakeWorker& worker = AddWorker(Narrow());
  PipelineOptions options;
  options.limits.max_queued_requests = 1;
  options.limits.max_queued_per_tenant = 2;
  StartRouter(options);
  worker.frozen = true;
  Start(AskAs("a", "running"));
  Start(AskAs("a", "queued"));
  Start(AskAs("a", "over"));
  GenerateRequest greedy = AskAs("b", "greedy");
  TenantProfile profile = *greedy.tenant;
  profile.requests_per_minute = 1;
  greedy.tenant = std::make_shared<const TenantProfile>(profile);
  Run(100 * kMicrosPerMilli);
  ASSERT_TRUE(sinks_[2]->error.has_value());
  EXPECT_EQ(sinks_[2]->error->code, ApiCode::kUnavailable);
  EXPECT_GE(sinks_[2]->error->retry_after_ms, 1000u);
  pipeline_->Cancel(1);
  worker.frozen = false;
  Run(kSecond);
  Start(greedy);
  Start(greedy);
  Run(2 * kSecond);
  EXPECT_TRUE(sinks_[3]->usage.has_value());
  ASSERT_TRUE(sinks_[4]->error.has_value());
  EXPECT_EQ(sinks_[4]->error->code, ApiCode::kRateLimited);
  EXPECT_EQ(sinks_[4]->error->retry_after_ms, 60'000u);
  EXPECT_TRUE(Says("quire_router_refused_requests_total{cause=\"queue_full\"} 1"));
  EXPECT_TRUE(Says("quire_router_refused_requests_total{cause=\"requests_per_minute\"} 1"));
  EXPECT_TRUE(Says("quire_router_quota_refusals_total{tenant=\"b\"} 1"));
  for (const char* model : {"fake", "unknown"}) {  // over the queue; over the quota, at once
    EXPECT_TRUE(Says("quire_router_requests_total{model=\"" + std::string(model) +
                     "\",outcome=\"rejected\"} 1"));
  }
}

TEST_F(PipelineAdmissionTest, UnusedTokensOfAQuotaAreGivenBack) {
  AddWorker();
  StartRouter();
  GenerateRequest ask = AskAs("a", "r");
  TenantProfile profile = *ask.tenant;
  profile.tokens_per_minute = 100;
  ask.tenant = std::make_shared<const TenantProfile>(profile);
  ask.sampling.max_tokens = 98;  // and two of prompt
  ask.sampling.stop = {"c"};
  EXPECT_TRUE(RunOne(ask, kSecond).usage.has_value());
  const RecordingSink refused = RunOne(ask, kSecond);
  ASSERT_TRUE(refused.error.has_value());
  EXPECT_EQ(refused.error->code, ApiCode::kRateLimited);
  ask.sampling.max_tokens = 90;
  EXPECT_TRUE(RunOne(ask, kSecond).usage.has_value()) << "three tokens and the prompt were taken";
}

TEST_F(PipelineAdmissionTest, AQuotaIsSharedWithOtherRouters) {
  FakeWorker& worker = AddWorker();
  worker.routers_attached = 2;
  StartRouter();
  GenerateRequest ask = AskAs("a", "r");
  TenantProfile profile = *ask.tenant;
  profile.requests_per_minute = 4;
  ask.tenant = std::make_shared<const TenantProfile>(profile);
  EXPECT_TRUE(RunOne(ask, kSecond).usage.has_value());
  EXPECT_TRUE(RunOne(ask, kSecond).usage.has_value());
  EXPECT_TRUE(RunOne(ask, kSecond).error.has_value());
}

TEST_F(PipelineAdmissionTest, StreamsOfALostWorkerGoAheadOfNewRequests) {
  FakeWorker& first = AddWorker(Narrow());
  FakeWorker& second = AddWorker(Narrow());
  PipelineOptions options;
  options.policy = FindPolicy("round-robin");
  StartRouter(options);
  GenerateRequest stream = AskAs("a", "stream");
  stream.sampling.max_tokens = 100;
  Start(stream);
  Run(100 * kMicrosPerMilli);
  FakeWorker& runs = first.attempts.empty() ? second : first;
  FakeWorker& other = first.attempts.empty() ? first : second;
  runs.frozen = other.frozen = true;
  for (int i = 0; i < 4; ++i) Start(AskAs("a", "new-" + std::to_string(i)));
  Run(100 * kMicrosPerMilli);
  runs.Down();
  other.frozen = false;
  Run(500 * kMicrosPerMilli);
  const std::vector<std::string> order = Submitted(other);
  ASSERT_GE(order.size(), 3u);
  const auto at = [&](const std::string& id) {
    return std::find(order.begin(), order.end(), id) - order.begin();
  };
  EXPECT_LT(at("stream"), at("new-2")) << "it came before all that were queued";
  EXPECT_LT(at("stream"), at("new-3"));
  Run(10 * kSecond);
  for (const auto& sink : sinks_) EXPECT_TRUE(sink->usage.has_value());
}

TEST_F(PipelineAdmissionTest, AnEmptyPoolIsWaitedForAndThenRefused) {
  FakeWorker& worker = AddWorker();
  StartRouter();
  worker.Down();
  Run(100 * kMicrosPerMilli);
  Start(AskAs("a", "early"));
  Run(kSecond);
  EXPECT_FALSE(sinks_[0]->Over());
  EXPECT_TRUE(
      Says("quire_router_queued_requests{model=\"fake\",model_id=\"model-a\","
           "priority=\"normal\"} 1"))
      << "with no worker at all";
  Start(AskAs("a", "late"));
  Run(510 * kMicrosPerMilli);
  ASSERT_TRUE(sinks_[0]->error.has_value());
  EXPECT_EQ(sinks_[0]->error->code, ApiCode::kUnavailable);
  EXPECT_GT(sinks_[0]->error->retry_after_ms, 0u);
  EXPECT_FALSE(sinks_[1]->Over()) << "it has waited half a second";
  worker.Up();
  Run(900 * kMicrosPerMilli);
  EXPECT_TRUE(sinks_[1]->usage.has_value() || sinks_[1]->error.has_value());
  Run(10 * kSecond);
  EXPECT_TRUE(RunOne(AskAs("a", "after")).usage.has_value());
  ExpectNothingLeft();
}

TEST_F(PipelineAdmissionTest, TheFirstWorkerOfAllIsWaitedForToo) {
  FakeWorker& worker = AddWorker();
  worker.Down();
  PipelineOptions options;
  options.limits.empty_pool_wait_ms = 20'000;
  options.limits.max_queued_requests = 2;
  StartRouter(options);
  Start(AskAs("a", "early"));
  GenerateRequest hasty = AskAs("a", "hasty");
  hasty.timeout_ms = 200;
  Start(std::move(hasty));
  Start(AskAs("a", "over"));
  Run(2 * kSecond);
  EXPECT_FALSE(sinks_[0]->Over());
  EXPECT_EQ(sinks_[1]->error->code, ApiCode::kDeadlineExceeded);
  EXPECT_EQ(sinks_[2]->error->code, ApiCode::kUnavailable) << "the queue was full";
  EXPECT_TRUE(
      Says("quire_router_queued_requests{model=\"unknown\",model_id=\"\","
           "priority=\"normal\"} 1"));
  pipeline_->CheckInvariants();
  worker.Up();
  Run(10 * kSecond);
  EXPECT_EQ(sinks_[0]->text(), "ab");
  Run(kSecond);
  EXPECT_TRUE(
      Says("quire_router_queued_requests{model=\"unknown\",model_id=\"\","
           "priority=\"normal\"} 0"));
  GenerateRequest nobody = AskAs("a", "nobody");
  nobody.model = "nobody";
  EXPECT_EQ(RunOne(nobody, 100 * kMicrosPerMilli).error->code, ApiCode::kNotFound)
      << "models are known: this one is not served";
  ExpectNothingLeft();
}

TEST_F(PipelineAdmissionTest, NoWorkerEverIsAnHonestNo) {
  AddWorker().Down();
  StartRouter();
  RecordingSink sink;
  pipeline_->Start(Ask("x"), &sink);
  Run(1499 * kMicrosPerMilli);
  EXPECT_FALSE(sink.Over());
  Run(2 * kMicrosPerMilli);
  ASSERT_TRUE(sink.error.has_value());
  EXPECT_EQ(sink.error->code, ApiCode::kUnavailable);
  EXPECT_GT(sink.error->retry_after_ms, 0u);
}

TEST_F(PipelineAdmissionTest, JournalsShedNewRequestsOnly) {
  AddWorker();
  PipelineOptions options;
  options.limits.max_journal_bytes = 100 * sizeof(TokenId);
  StartRouter(options);
  GenerateRequest longer = AskAs("a", "long");
  longer.sampling.max_tokens = 200;
  Start(longer);
  Run(1500 * kMicrosPerMilli);
  const RecordingSink shed = RunOne(AskAs("b", "shed"), 100 * kMicrosPerMilli);
  ASSERT_TRUE(shed.error.has_value());
  EXPECT_EQ(shed.error->code, ApiCode::kUnavailable);
  Run(5 * kSecond);
  EXPECT_EQ(sinks_[0]->usage->completion_tokens, 200u);
  EXPECT_TRUE(RunOne(AskAs("b", "after")).usage.has_value());
  EXPECT_TRUE(Says("quire_router_refused_requests_total{cause=\"journal_full\"} 1"));
}

TEST_F(PipelineAdmissionTest, ARequestThatNobodyServesBlocksNoOther) {
  AddWorker();
  FakeWorkerOptions plain;
  plain.features = {};
  AddWorker(plain);
  StartRouter();
  workers_[0]->Down();
  Run(100 * kMicrosPerMilli);
  GenerateRequest resumed = AskAs("a", "resumed");
  resumed.sampling.max_tokens = 5;
  resumed.resume = ResumeRequest{1, 1, "model-a", {{'a'}}};
  Start(resumed);
  Start(AskAs("a", "plain"));
  Run(kSecond);
  EXPECT_TRUE(sinks_[1]->usage.has_value());
}

}  // namespace
}  // namespace quire
