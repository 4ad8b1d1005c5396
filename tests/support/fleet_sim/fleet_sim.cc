#include "tests/support/fleet_sim/fleet_sim.h"

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/pipeline/make_pipeline.h"
#include "router/records/request_record.h"
#include "tests/sim/sim_worker.h"
#include "tests/support/fleet_sim/client.h"
#include "tests/support/fleet_sim/poison_stream.h"
#include "tests/support/fleet_sim/stoppable.h"

namespace quire::sim {
namespace {

using Client = FleetSimClient;

constexpr Micros kMilli = kMicrosPerMilli;
constexpr Micros kSecond = kMicrosPerSecond;
constexpr Micros kPatience = 300 * kSecond;  // after the last fault everything has ended by then

class FleetSim final : private RecordSink, public ClientHost {
 public:
  FleetSim(const FleetScenario& scenario, bool calm);
  ~FleetSim() override { routers_.clear(); }
  FleetResult Run(const FleetResult* calm);

  struct Router {
    Router(VirtualWorld& world, const std::string& name)
        : executor(world.executor()),
          background(executor, 200),
          dialer(world.MakeDialer(name), executor) {}
    StoppableExecutor executor;
    VirtualBackground background;
    StoppableDialer dialer;
    Metrics metrics;
    std::unique_ptr<Pipeline> pipeline;
    uint64_t asked = 0;  // requests that it was given
  };
  Pipeline* Serving(size_t router) override {
    Router* one = routers_[router].get();
    return one == nullptr || one->executor.stopped() ? nullptr : one->pipeline.get();
  }
  void Asked(size_t router) override { ++routers_[router]->asked; }
  size_t router_count() const override { return routers_.size(); }
  void At(Micros after, std::function<void()> work) override {
    world.executor().PostAt(world.clock().Now() + after, std::move(work));
  }
  void Trace(const std::string& what) override {
    world.Trace(std::to_string(world.clock().Now()) + " " + what);
  }
  void Violate(const std::string& what) override {
    if (result_.violations.size() < 10) {
      result_.violations.push_back(std::to_string(world.clock().Now()) + ": " + what);
    }
  }
  void Meet(const std::string& what, uint64_t count = 1) override { result_.met[what] += count; }

  VirtualWorld world;

 private:
  void StartRouter(size_t index);
  void KillRouter(size_t index);
  void CountRouter(const Router& router);
  void KillWorker(SimWorker& worker);
  void Poisoned(SimWorker& worker);
  void Begin(const FleetFault& fault);
  void Heal(const FleetFault& fault);
  void Reset(size_t worker, Micros until);
  void HoldAll(const std::string& router, bool held);
  void Judge(const FleetResult* calm);
  void JudgeSuspect(const Client& client, const FleetClient& plan);
  void Write(const RequestRecord& record) override { records_.push_back(record); }

  const FleetScenario& scenario_;
  const bool calm_;
  NullLogger log_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<std::unique_ptr<Router>> routers_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<RequestRecord> records_;
  std::set<std::pair<std::string, uint64_t>> dead_;  // workers' epochs that died, or seemed to
  uint64_t poison_kills_ = 0;
  uint64_t router_kills_ = 0;
  size_t healed_ = 0;
  FleetResult result_;
};

// ------------------------------------------------------------------------------------ the fleet

FleetSim::FleetSim(const FleetScenario& scenario, bool calm)
    : world(scenario.seed), scenario_(scenario), calm_(calm) {
  world.SetDelay(20, 2 * kMilli);
  for (size_t i = 0; i < scenario.workers; ++i) {
    workers_.push_back(std::make_unique<SimWorker>(world, "worker-" + std::to_string(i),
                                                   calm ? 600 : scenario.page_count,
                                                   calm ? 16 : scenario.max_waiting));
    if (calm) continue;
    SimWorker& worker = *workers_.back();
    const bool poison = std::any_of(scenario.clients.begin(), scenario.clients.end(),
                                    [](const FleetClient& client) { return client.poison; });
    if (!poison) continue;
    worker.SetWrapper([this, &worker](std::unique_ptr<FrameStream> stream) {
      return std::make_unique<PoisonStream>(std::move(stream),
                                            [this, &worker] { Poisoned(worker); });
    });
  }
  routers_.resize(calm ? 1 : scenario.routers);
  for (size_t i = 0; i < routers_.size(); ++i) StartRouter(i);
  for (size_t i = 0; i < scenario.clients.size(); ++i) {
    clients_.push_back(std::make_unique<Client>(*this, i, scenario.clients[i]));
    const FleetClient& plan = scenario.clients[i];
    At(kSecond + plan.starts_at, [this, i] { clients_[i]->Ask(); });
    if (calm || plan.cancels_after < 0) continue;
    At(kSecond + plan.starts_at + plan.cancels_after, [this, i] { clients_[i]->Cancel(); });
  }
  if (calm) return;
  for (const FleetFault& fault : scenario.faults) {
    At(kSecond + fault.at, [this, fault] { Begin(fault); });
    At(kSecond + fault.at + fault.lasts, [this, fault] {
      Heal(fault);
      ++healed_;
    });
  }
}

void FleetSim::StartRouter(size_t index) {
  if (routers_[index] != nullptr) return;
  routers_[index] = std::make_unique<Router>(world, "router-" + std::to_string(index));
  Router& router = *routers_[index];
  PipelineOptions options;
  options.routing_policy = scenario_.policy;
  options.limits.max_carry_on_tokens = scenario_.max_carry_on_tokens;
  options.limits.window_tokens = scenario_.window_tokens;
  options.limits.placement_retry_burst = scenario_.retry_burst;
  for (const auto& worker : workers_) options.workers.push_back(worker->target());
  options.records = this;
  options.text_factory = [](const std::string&) {
    return absl::StatusOr<std::shared_ptr<const ModelText>>(std::make_shared<FakeText>());
  };
  auto made = MakePipeline(std::move(options), {router.executor, router.background, router.dialer,
                                                world.rng(), log_, router.metrics});
  QUIRE_CHECK(made.ok());
  router.pipeline = *std::move(made);
}

void FleetSim::KillRouter(size_t index) {
  if (routers_[index] == nullptr) return;
  ++router_kills_;
  CountRouter(*routers_[index]);
  routers_[index].reset();
  for (const auto& client : clients_) client->RouterDied(index);
}

void FleetSim::CountRouter(const Router& router) {
  const std::string text = router.metrics.Render();
  const auto value = [&text](const std::string& name) -> uint64_t {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
  };
  const uint64_t retries = value("quire_router_placement_retries_total");
  if (retries > scenario_.retry_burst + router.asked / 10) {
    Violate(std::to_string(retries) + " placement retries for " + std::to_string(router.asked) +
            " requests");
  }
  for (const char* name :
       {"quire_router_carry_ons_total", "quire_router_placement_retries_total",
        "quire_router_paced_carry_ons_total", "quire_router_worker_deaths_total",
        "quire_router_worker_deaths_taken_back_total", "quire_router_kept_silences_total",
        "quire_router_suspect_requests_total", "quire_router_silent_workers_total",
        "quire_router_broken_attempts_total", "quire_router_placement_retries_denied_total",
        "quire_router_stale_outputs_total",
        "quire_router_cache_predictions_total{verdict=\"wrong\"}",
        "quire_router_cache_predictions_total{verdict=\"exact\"}"}) {
    const size_t at = text.find("\n" + std::string(name) + " ");
    if (at == std::string::npos) {
      Violate(std::string(name) + " is not counted");
      continue;
    }
    Meet(name, std::stoull(text.substr(at + std::string(name).size() + 2)));
  }
}

void FleetSim::KillWorker(SimWorker& worker) {
  if (!worker.up()) return;
  // A router that could not hear a worker's good-bye takes its end for a death.
  const auto deafens = [](const FleetFault& fault) {
    using Kind = FleetFault::Kind;
    return fault.kind != Kind::kCrash && fault.kind != Kind::kFreeze && fault.kind != Kind::kDrain;
  };
  const bool heard = std::none_of(scenario_.faults.begin(), scenario_.faults.end(), deafens);
  if (!worker.draining() || !heard) dead_.insert({worker.name(), worker.epoch().value()});
  worker.Crash();
}

void FleetSim::Poisoned(SimWorker& worker) {
  const Epoch epoch = worker.epoch();
  world.executor().Post([this, &worker, epoch] {
    if (!worker.up() || worker.epoch() != epoch) return;
    ++poison_kills_;
    Trace(worker.name() + " is poisoned");
    KillWorker(worker);
    At(static_cast<Micros>(200 + world.rng().Next() % 1300) * kMilli,
       [&worker] { worker.Start(); });
  });
}

void FleetSim::Reset(size_t worker, Micros until) {
  if (world.clock().Now() >= until) return;
  world.CutLinks(workers_[worker]->target());
  At(500 * kMilli, [this, worker, until] { Reset(worker, until); });
}

void FleetSim::HoldAll(const std::string& router, bool held) {
  for (const auto& worker : workers_) {
    world.HoldPath(router, worker->target(), VirtualWorld::Way::kToTarget, held);
    world.HoldPath(router, worker->target(), VirtualWorld::Way::kFromTarget, held);
  }
}

void FleetSim::Begin(const FleetFault& fault) {
  SimWorker& worker = *workers_[fault.worker];
  const std::string router = "router-" + std::to_string(fault.router);
  using Kind = FleetFault::Kind;
  Trace("fault " + std::to_string(static_cast<int>(fault.kind)) + " " + worker.name() + " " +
        router);
  Meet("faults of kind " + std::to_string(static_cast<int>(fault.kind)));
  switch (fault.kind) {
    case Kind::kCut:
      return world.CutLinks(worker.target());
    case Kind::kCrash:
      return KillWorker(worker);
    case Kind::kHold:
      return world.HoldLinks(worker.target(), true);
    case Kind::kHoldOneWay:
      return world.HoldPath(
          router, worker.target(),
          fault.to_worker ? VirtualWorld::Way::kToTarget : VirtualWorld::Way::kFromTarget, true);
    case Kind::kFreeze:
      if (worker.up()) dead_.insert({worker.name(), worker.epoch().value()});  // stuck, maybe
      return worker.SetFrozen(true);
    case Kind::kDrain:
      return worker.Drain(fault.lasts / 3);
    case Kind::kRefuse:
      if (worker.up()) dead_.insert({worker.name(), worker.epoch().value()});
      return worker.Unlisten();
    case Kind::kRouterKill:
      return KillRouter(fault.router);
    case Kind::kRouterStop:
      if (routers_[fault.router] != nullptr) routers_[fault.router]->executor.Stop();
      return;
    case Kind::kHoldAll:
      return HoldAll(router, true);
    case Kind::kResets:
      return Reset(fault.worker, world.clock().Now() + fault.lasts);
  }
}

void FleetSim::Heal(const FleetFault& fault) {
  SimWorker& worker = *workers_[fault.worker];
  const std::string router = "router-" + std::to_string(fault.router);
  using Kind = FleetFault::Kind;
  Trace("heals " + std::to_string(static_cast<int>(fault.kind)));
  switch (fault.kind) {
    case Kind::kCut:
    case Kind::kResets:
      return;
    case Kind::kHoldAll:
      return HoldAll(router, false);
    case Kind::kCrash:
      return worker.Start();
    case Kind::kHold:
      return world.HoldLinks(worker.target(), false);
    case Kind::kHoldOneWay:
      return world.HoldPath(
          router, worker.target(),
          fault.to_worker ? VirtualWorld::Way::kToTarget : VirtualWorld::Way::kFromTarget, false);
    case Kind::kFreeze:
      return worker.SetFrozen(false);
    case Kind::kDrain:
      if (worker.draining()) KillWorker(worker);
      return worker.Start();
    case Kind::kRefuse:
      return worker.Listen();
    case Kind::kRouterKill:
      return StartRouter(fault.router);
    case Kind::kRouterStop:
      if (routers_[fault.router] != nullptr) routers_[fault.router]->executor.GoOn();
      return;
  }
}

FleetResult FleetSim::Run(const FleetResult* calm) {
  const size_t faults = calm_ ? 0 : scenario_.faults.size();
  const auto over = [this, faults] {
    return healed_ >= faults && std::all_of(clients_.begin(), clients_.end(),
                                            [](const auto& client) { return client->over; });
  };
  const auto check = [this] {
    for (const auto& router : routers_) {
      if (router != nullptr) router->pipeline->CheckInvariants();
    }
  };
  const Micros limit = world.clock().Now() + kPatience;
  while (!over() && world.clock().Now() < limit) {
    world.RunUntil(world.clock().Now() + 50 * kMilli);
    check();
  }
  if (!over()) Violate("a client waits for ever");
  if (!calm_) {
    // Time for the last Cancels, and for what a lost router left to be given up.
    world.RunUntil(world.clock().Now() + 12 * kSecond);
    check();
  }
  for (const auto& router : routers_) {
    if (router == nullptr) continue;
    if (router->pipeline->LiveRequests() > 0) Violate("a router keeps a request");
    CountRouter(*router);
  }
  Judge(calm);
  for (size_t i = 0; i < clients_.size(); ++i) {
    for (const Client::Choice& choice : clients_[i]->choices) {
      result_.ids[i].push_back(choice.ids);
    }
  }
  result_.trace = world.trace();
  return std::move(result_);
}

void FleetSim::Judge(const FleetResult* calm) {
  if (!calm_) {
    for (const auto& worker : workers_) {
      if (worker->up() && !worker->AtRest()) Violate(worker->name() + " still holds something");
    }
  }
  if (result_.met["quire_router_cache_predictions_total{verdict=\"wrong\"}"] > 0) {
    Violate("a router thought it knew what was cached");
  }
  if (result_.met["quire_router_broken_attempts_total"] > 0) {
    Violate("a router found a worker's outputs out of order");
  }
  const auto silences = [](const FleetFault& fault) {
    using Kind = FleetFault::Kind;
    return fault.kind == Kind::kHold || fault.kind == Kind::kHoldOneWay ||
           fault.kind == Kind::kHoldAll;
  };
  if (std::none_of(scenario_.faults.begin(), scenario_.faults.end(), silences) &&
      result_.met["quire_router_silent_workers_total"] > 0) {
    Violate("a worker was given up for silence that only the router's own sleep can explain");
  }
  // Each router counts what it saw, over all requests with that prompt, as long as it lives.
  uint64_t routers_lives = scenario_.routers;
  for (const FleetFault& fault : scenario_.faults) {
    routers_lives += fault.kind == FleetFault::Kind::kRouterKill ? 1 : 0;
  }
  uint64_t poison_asks = 1;
  for (size_t i = 0; i < clients_.size(); ++i) {
    const Client& client = *clients_[i];
    if (calm_ && !client.finished) Violate("a calm world finishes everything");
    if (client.finished) Meet("finished");
    if (scenario_.clients[i].poison) poison_asks = static_cast<uint64_t>(client.asks);
    if (client.suspect) JudgeSuspect(client, scenario_.clients[i]);
    if (calm == nullptr) continue;
    const std::vector<std::vector<TokenId>>& whole = calm->ids.at(i);
    for (size_t choice = 0; choice < client.choices.size(); ++choice) {
      const std::vector<TokenId>& ids = client.choices[choice].ids;
      const bool all = !client.choices[choice].finish_reason.empty();
      const bool prefix = ids.size() <= whole[choice].size() &&
                          std::equal(ids.begin(), ids.end(), whole[choice].begin());
      if (!prefix || (all && ids.size() != whole[choice].size())) {
        Violate("client " + std::to_string(i) + " has other tokens than in a calm world");
      }
    }
  }
  if (poison_kills_ > 3 * std::min(poison_asks, routers_lives)) {
    Violate("a poisonous request killed " + std::to_string(poison_kills_) + " workers");
  }
  Meet("killed by poison", poison_kills_);
}

// Its prompt met its deaths, in this request or in others with the same prompt.
void FleetSim::JudgeSuspect(const Client& client, const FleetClient& plan) {
  (void)client;
  Meet("suspect");
  const auto ids_of = [](const FleetClient& one) {
    return std::get<TokenPrompt>(one.ask.prompt).ids;
  };
  // A step that was stuck and the end of its epoch may both be deaths.
  std::set<std::tuple<std::string, uint64_t, AttemptEnd>> met;
  for (const RequestRecord& record : records_) {
    const auto same = [&](const FleetClient& one) {
      return one.ask.request_id == record.request_id && ids_of(one) == ids_of(plan);
    };
    if (std::none_of(scenario_.clients.begin(), scenario_.clients.end(), same)) continue;
    for (const AttemptReport& attempt : record.attempts) {
      const bool gone = attempt.end == AttemptEnd::kLost || attempt.end == AttemptEnd::kStuck;
      const std::pair key(attempt.worker_id, attempt.epoch.value());
      if (gone && dead_.contains(key)) met.insert({key.first, key.second, attempt.end});
    }
  }
  if (met.size() < 3) {
    Violate("a request is suspect after " + std::to_string(met.size()) + " deaths");
  }
}

}  // namespace

FleetResult RunCalm(const FleetScenario& scenario) {
  FleetScenario calm = scenario;
  for (FleetClient& client : calm.clients) {
    client.ask.timeout_ms = 0;
    client.router = 0;
  }
  calm.policy = "round-robin";
  return FleetSim(calm, true).Run(nullptr);
}

FleetResult RunFleet(const FleetScenario& scenario, const FleetResult* calm) {
  return FleetSim(scenario, false).Run(calm);
}

FleetResult RunFleetSeed(uint64_t seed) {
  const FleetScenario scenario = DrawFleet(seed);
  const FleetResult calm = RunCalm(scenario);
  FleetResult result = RunFleet(scenario, &calm);
  result.violations.insert(result.violations.begin(), calm.violations.begin(),
                           calm.violations.end());
  return result;
}

}  // namespace quire::sim
