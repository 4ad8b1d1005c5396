#include "tests/sim/sim_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/router/support/fake_text.h"

namespace quire::sim {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;
constexpr Micros kSecond = kMicrosPerSecond;

class Cluster;

class Client final : public ResponseSink {
 public:
  Client(Cluster& cluster, size_t index, const ClientPlan& plan)
      : cluster_(cluster), index_(index), plan_(plan) {}
  void Start();
  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;
  bool Over() const { return result.cancelled || result.terminal_events > 0; }

  ClientResult result;

 private:
  void Say(const std::string& what);
  Cluster& cluster_;
  const size_t index_;
  const ClientPlan& plan_;
  RequestId id_ = 0;
};

class Cluster final : private RecordSink {
 public:
  explicit Cluster(const Scenario& scenario)
      : world(scenario.seed), scenario_(scenario), background_(world.executor(), 200) {
    world.SetDelay(20, 2 * kMilli);
    PipelineOptions options;
    for (int i = 0; i < 2; ++i) {
      workers_.push_back(
          std::make_unique<SimWorker>(world, SimWorkerOptions{.name = "worker-" + std::to_string(i),
                                                              .page_count = scenario.page_count}));
      options.workers.push_back(workers_.back()->target());
      workers_.back()->SetRecordTaker([this, i](Epoch epoch, const AttemptRecord& record) {
        const bool fresh =
            attempts_
                .try_emplace({"worker-" + std::to_string(i), epoch.value(),
                              record.key.request.value(), record.key.attempt.value()},
                             record)
                .second;
        EXPECT_TRUE(fresh) << "an attempt is booked once";
      });
    }
    options.records = this;
    options.text_factory = [](const std::string&) {
      return absl::StatusOr<std::shared_ptr<const ModelText>>(std::make_shared<FakeText>());
    };
    auto made = MakePipeline(std::move(options), {world.executor(), background_, *dialer_,
                                                  world.rng(), logger_, metrics_});
    EXPECT_TRUE(made.ok()) << made.status();
    pipeline = *std::move(made);
    for (size_t i = 0; i < scenario.clients.size(); ++i) {
      clients_.push_back(std::make_unique<Client>(*this, i, scenario.clients[i]));
      At(scenario.clients[i].starts_at, [this, i] { clients_[i]->Start(); });
    }
    for (const FaultPlan& fault : scenario.faults) Plan(fault);
  }

  RunResult Run() {
    const Micros start = world.clock().Now();
    const Micros limit = start + 300 * kSecond;
    bool over = false;
    while (!over && world.clock().Now() < limit) {
      world.RunUntil(world.clock().Now() + 20 * kMilli);
      pipeline->CheckInvariants();
      over = healed_ >= scenario_.faults.size() &&
             std::all_of(clients_.begin(), clients_.end(), [](const auto& c) { return c->Over(); });
    }
    RunResult result;
    result.took = world.clock().Now() - start;
    // Time for the last Cancels, and for what a lost router left to be given up.
    world.RunUntil(world.clock().Now() + 12 * kSecond);
    pipeline->CheckInvariants();
    result.all_over = over && pipeline->LiveRequests() == 0;
    result.at_rest = std::all_of(workers_.begin(), workers_.end(),
                                 [](const auto& worker) { return worker->AtRest(); });
    for (const auto& client : clients_) result.clients.push_back(client->result);
    result.trace = world.trace();
    result.records = records_;
    result.attempts = attempts_;
    result.metrics = metrics_.Render();
    const std::string& metrics = result.metrics;
    for (const char* verdict : {"exact", "raced", "wrong"}) {
      const std::string name =
          std::string("quire_router_cache_predictions_total{verdict=\"") + verdict + "\"} ";
      const size_t at = metrics.find(name);
      EXPECT_NE(at, std::string::npos);
      result.predictions[verdict] = std::atoi(metrics.c_str() + at + name.size());
    }
    return result;
  }

  void At(Micros when, std::function<void()> work) {
    world.executor().PostAt(kSecond + when, std::move(work));
  }

  VirtualWorld world;
  std::unique_ptr<Pipeline> pipeline;

 private:
  void Plan(const FaultPlan& fault) {
    SimWorker& worker = *workers_[static_cast<size_t>(fault.worker)];
    const auto trace = [this, fault](const char* what) {
      world.Trace(std::to_string(world.clock().Now()) + " worker-" + std::to_string(fault.worker) +
                  " " + what);
    };
    using Kind = FaultPlan::Kind;
    At(fault.at, [this, fault, &worker, trace] {
      switch (fault.kind) {
        case Kind::kCut:
          trace("cut");
          world.CutLinks(worker.target());
          break;
        case Kind::kCrash:
          trace("crash");
          worker.Crash();
          break;
        case Kind::kHold:
          trace("hold");
          world.HoldLinks(worker.target(), true);
          break;
        case Kind::kFreeze:
          trace("freeze");
          worker.SetFrozen(true);
          break;
        case Kind::kDrain:
          trace("drains");
          // A worker drains once in its life.
          if (!draining_[fault.worker]) worker.Drain(fault.lasts / 2);
          draining_[fault.worker] = true;
          break;
      }
    });
    At(fault.at + fault.lasts, [this, fault, &worker, trace] {
      trace("heals");
      if (fault.kind == Kind::kDrain) worker.Crash();
      if (fault.kind == Kind::kCrash || fault.kind == Kind::kDrain) {
        worker.Start();
        draining_[fault.worker] = false;
      }
      if (fault.kind == Kind::kHold) world.HoldLinks(worker.target(), false);
      if (fault.kind == Kind::kFreeze) worker.SetFrozen(false);
      ++healed_;
    });
  }

  void Write(const RequestRecord& record) override { records_.push_back(record); }

  const Scenario& scenario_;
  std::vector<RequestRecord> records_;
  std::map<std::tuple<std::string, uint64_t, uint64_t, uint32_t>, AttemptRecord> attempts_;
  VirtualBackground background_;
  std::unique_ptr<Dialer> dialer_ = world.MakeDialer();
  NullLogger logger_;
  Metrics metrics_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<int, bool> draining_;
  size_t healed_ = 0;
};

void Client::Say(const std::string& what) {
  EXPECT_FALSE(Over()) << "client " << index_ << " hears " << what << " after its end";
  cluster_.world.Trace(std::to_string(cluster_.world.clock().Now()) + " client-" +
                       std::to_string(index_) + " " + what);
}

void Client::Start() {
  id_ = cluster_.pipeline->Start(plan_.ask, this);
  if (plan_.cancels_after < 0) return;
  cluster_.world.executor().PostAt(cluster_.world.clock().Now() + plan_.cancels_after, [this] {
    if (Over()) return;
    Say("cancels");
    result.cancelled = true;
    cluster_.pipeline->Cancel(id_);
  });
}

void Client::OnStarted(const Started& started) {
  Say("started " + started.worker);
  result.started = true;
  const bool scored = plan_.ask.sampling.prompt_logprobs.has_value();
  EXPECT_EQ(started.prompt_logprobs.size(), scored ? started.prompt_ids.size() : 0);
  for (const TokenLogprob& token : started.prompt_logprobs) {
    result.prompt_logprobs.push_back(token.logprob);
    result.prompt_logprobs.push_back(static_cast<float>(token.rank));
    for (const TokenLogprob& top : token.top) result.prompt_logprobs.push_back(top.logprob);
  }
}

void Client::OnDelta(const Delta& delta) {
  ChoiceResult& choice = result.choices[delta.choice];
  EXPECT_EQ(choice.finish_reason, "") << "a choice says nothing after its end";
  EXPECT_EQ(delta.first_index, choice.ids.size()) << "each index once, in order";
  choice.ids.insert(choice.ids.end(), delta.ids.begin(), delta.ids.end());
  choice.text += delta.text;
  for (const TokenLogprob& logprob : delta.logprobs) {
    EXPECT_EQ(logprob.id, delta.ids.at(static_cast<size_t>(&logprob - delta.logprobs.data())));
    choice.logprobs.push_back(logprob.logprob);
  }
  Say("delta " + std::to_string(delta.choice) + ":" + std::to_string(choice.ids.size()) + " " +
      (delta.ids.empty() ? "-" : std::to_string(delta.ids.back())));
  cluster_.world.executor().PostAt(cluster_.world.clock().Now() + plan_.takes_after,
                                   [this, index = delta.choice, taken = choice.ids.size()] {
                                     cluster_.pipeline->Taken(id_, index, taken);
                                   });
}

void Client::OnChoiceEnd(const ChoiceEnd& end) {
  EXPECT_EQ(result.choices[end.choice].finish_reason, "") << "a choice ends once";
  result.choices[end.choice].finish_reason = end.finish_reason;
  Say("end " + std::to_string(end.choice) + " " + end.finish_reason);
}

void Client::OnFinished(const Usage& usage) {
  Say("finished");
  result.usage = usage;
  ++result.terminal_events;
}

void Client::OnError(const ApiError& error) {
  Say("error " + error.message);
  result.error = error;
  ++result.terminal_events;
}

ClientPlan DrawClient(VirtualRng& rng) {
  const auto below = [&rng](uint64_t n) { return rng.Next() % n; };
  ClientPlan plan;
  plan.starts_at = static_cast<Micros>(100 + below(3000)) * kMilli;  // workers are known by then
  GenerateRequest& ask = plan.ask;
  std::vector<TokenId> prompt(1 + below(below(3) == 0 ? 300 : 40));
  // Few different openings, so that prefixes are shared.
  const uint64_t opening = below(3);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<TokenId>(i < 32 ? (opening * 31 + i) % 256 : below(256));
  }
  ask.prompt = TokenPrompt{std::move(prompt)};
  ask.sampling.max_tokens = static_cast<int32_t>(1 + below(below(4) == 0 ? 200 : 60));
  ask.sampling.seed = rng.Next();
  if (below(3) == 0) ask.sampling.temperature = 0.0f;
  if (below(3) == 0) ask.sampling.top_k = 5;
  if (below(4) == 0) ask.sampling.stop = {std::string(1, static_cast<char>('a' + below(26))), "zz"};
  if (below(4) == 0) {
    ask.sampling.repetition_penalty = 1.3f;
    ask.sampling.presence_penalty = 0.5f;
  }
  if (below(4) == 0) ask.sampling.logit_bias = {{'e', 4.0f}, {kFakeEos, 6.0f}};
  if (below(4) == 0) ask.sampling.logprobs = static_cast<int32_t>(below(3));
  if (below(3) == 0) ask.sampling.n = static_cast<int32_t>(2 + below(kSimChoices - 1));
  if (below(5) == 0) ask.sampling.prompt_logprobs = static_cast<int32_t>(below(3));
  if (below(8) == 0) {
    ask.sampling.use_beam_search = true;
    ask.sampling.repetition_penalty.reset();
    ask.sampling.presence_penalty.reset();
    ask.sampling.logit_bias.clear();
    ask.sampling.prompt_logprobs.reset();
  }
  ask.streaming = below(2) == 0;
  if (below(8) == 0) ask.timeout_ms = 200 + below(3000);
  plan.takes_after = static_cast<Micros>(below(20)) * kMilli;
  if (below(6) == 0) plan.cancels_after = static_cast<Micros>(below(1500)) * kMilli;
  return plan;
}

}  // namespace

Scenario DrawScenario(uint64_t seed) {
  VirtualRng rng(seed ^ 0x5117ull);
  Scenario scenario;
  scenario.seed = seed;
  const size_t clients = 6 + rng.Next() % 10;
  for (size_t i = 0; i < clients; ++i) scenario.clients.push_back(DrawClient(rng));
  const size_t faults = 1 + rng.Next() % 4;
  for (size_t i = 0; i < faults; ++i) {
    FaultPlan fault;
    fault.kind = static_cast<FaultPlan::Kind>(rng.Next() % 5);
    fault.worker = static_cast<int>(rng.Next() % 2);
    fault.at = static_cast<Micros>(200 + rng.Next() % 4000) * kMilli;
    fault.lasts = static_cast<Micros>(10 + rng.Next() % 4000) * kMilli;
    scenario.faults.push_back(fault);
  }
  // Sometimes so few that requests are preempted.
  scenario.page_count = rng.Next() % 3 == 0 ? 150 : 600;
  return scenario;
}

RunResult RunScenario(const Scenario& scenario) { return Cluster(scenario).Run(); }

}  // namespace quire::sim
