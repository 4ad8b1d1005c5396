#include "tests/support/fleet_sim/fleet_sim.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "tests/support/fleet_sim/fleet_world.h"
#include "tests/support/fleet_sim/poison_stream.h"
#include "tests/support/fleet_sim/sim_text.h"
#include "tests/support/tag_adapters.h"

namespace quire::sim {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;
constexpr Micros kSecond = kMicrosPerSecond;
// "A pool which lost all of its workers serves within a second of one that is ready", on a network
// that takes no time.
constexpr Micros kFindsWithin = kSecond;
constexpr int kDelays = 8;  // of frames: a router greets, and is greeted, and told of what is there
constexpr Micros kPatience = 300 * kSecond;  // after the last fault everything has ended by then

}  // namespace

bool FleetScenario::Has(FleetFault::Kind kind) const {
  return std::any_of(faults.begin(), faults.end(),
                     [kind](const FleetFault& fault) { return fault.kind == kind; });
}

// ------------------------------------------------------------------------------------ the fleet

FleetWorld::FleetWorld(const FleetScenario& scenario, const std::string& calm_model)
    : scenario_(scenario),
      calm_(!calm_model.empty()),
      world_(scenario.seed),
      reach_(kFindsWithin + kDelays * scenario.max_delay + scenario.max_close_delay,
             Micros{RouterLimits().empty_pool_wait_ms} * kMilli) {
  world_.SetDelay(20, calm_ ? 2 * kMilli : scenario.max_delay);
  if (!calm_ && scenario.max_close_delay > 0) world_.SetCloseDelay(20, scenario.max_close_delay);
  StartWorkers(calm_model);
  routers_.resize(calm_ ? 1 : scenario.policies.size());
  for (size_t i = 0; i < routers_.size(); ++i) {
    if (calm_ || scenario.router_starts[i] == 0) {
      StartRouter(i);
    } else {
      At(scenario.router_starts[i], [this, i] { StartRouter(i); });
    }
  }
  for (size_t i = 0; i < scenario.clients.size(); ++i) {
    clients_.push_back(std::make_unique<FleetSimClient>(*this, i, scenario.clients[i]));
    const FleetClient& plan = scenario.clients[i];
    At(kSecond + plan.starts_at, [this, i] { clients_[i]->Ask(); });
    if (calm_ || plan.cancels_after < 0) continue;
    At(kSecond + plan.starts_at + plan.cancels_after, [this, i] { clients_[i]->Cancel(); });
  }
  if (calm_) return;
  for (const FleetFault& fault : scenario.faults) {
    At(kSecond + fault.at, [this, fault] { Begin(fault); });
    At(kSecond + fault.at + fault.lasts, [this, fault] {
      Heal(fault);
      ++healed_;
    });
  }
}

void FleetWorld::StartWorkers(const std::string& calm_model) {
  const bool poison = std::any_of(scenario_.clients.begin(), scenario_.clients.end(),
                                  [](const FleetClient& client) { return client.poison; });
  for (size_t i = 0; i < scenario_.workers; ++i) {
    SimWorkerOptions options;
    options.name = "worker-" + std::to_string(i);
    options.first_adapter = static_cast<int>(i % test::kTagAdapters);
    if (calm_) {
      options.model_id = calm_model;
    } else {
      options.page_count = scenario_.page_count;
      options.max_waiting = scenario_.max_waiting;
      options.max_rows = scenario_.max_rows;
      options.snapshot_slice = scenario_.snapshot_slice;
      options.max_unsent_hashes = scenario_.max_unsent_hashes;
      options.plain = scenario_.plain[i];
    }
    workers_.push_back(std::make_unique<SimWorker>(world_, options));
    SimWorker& worker = *workers_.back();
    worker.SetRecordTaker([this, i](Epoch epoch, const AttemptRecord& record) {
      booked_[{workers_[i]->name(), epoch.value(), record.router.value(),
               record.key.request.value(), record.key.attempt.value()}] = record;
    });
    if (calm_ || !poison) continue;
    worker.SetWrapper([this, &worker](std::unique_ptr<FrameStream> stream) {
      return std::make_unique<PoisonStream>(std::move(stream),
                                            [this, &worker] { Poisoned(worker); });
    });
  }
}

void FleetWorld::StartRouter(size_t index) {
  if (routers_[index] != nullptr) return;
  WireWatch watch(scenario_.window_tokens, [this, index](const std::string& what) {
    Violate("router " + std::to_string(index) + ": " + what);
  });
  routers_[index] =
      std::make_unique<Router>(world_, "router-" + std::to_string(index), std::move(watch));
  Router& router = *routers_[index];
  PipelineOptions options;
  options.policy = FindPolicy(scenario_.policies[index]);
  options.limits.max_carry_on_tokens = scenario_.max_carry_on_tokens;
  options.limits.window_tokens = scenario_.window_tokens;
  options.limits.placement_retry_burst = scenario_.retry_burst;
  for (const auto& worker : workers_) options.workers.push_back(worker->target());
  options.records = this;
  options.text_factory = [](const std::string&) {
    return absl::StatusOr<std::shared_ptr<const ModelText>>(std::make_shared<SimText>());
  };
  auto made = MakePipeline(std::move(options), {router.executor, router.background, router.dialer,
                                                world_.rng(), log_, router.metrics});
  QUIRE_CHECK(made.ok());
  router.pipeline = *std::move(made);
}

// ---------------------------------------------------------------------- what clients need of it

Pipeline* FleetWorld::Serving(size_t router) {
  Router* one = routers_[router].get();
  if (one == nullptr || one->executor.stopped()) return nullptr;
  ++one->spoken;
  return one->pipeline.get();
}

void FleetWorld::Asked(size_t router, RequestId request, bool streaming) {
  ++routers_[router]->asked;
  routers_[router]->watch.Asked(request, streaming);
}

void FleetWorld::Told(size_t router, RequestId request, uint32_t choice, uint64_t count) {
  routers_[router]->watch.Told(request, choice, count);
}

// A router that is stopped hears of it when it goes on.
void FleetWorld::Took(size_t router, RequestId request, uint32_t choice, uint64_t count) {
  Router* one = routers_[router].get();
  if (one == nullptr) return;
  one->executor.Read([one, request, choice, count] {
    one->watch.Took(request, choice, count);
    one->pipeline->Taken(request, choice, count);
  });
}

// By a worker that is there, or comes back as it was.
bool FleetWorld::MayBeServed(const std::string& answerer) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
    return worker->model_id() == SimModelOf(answerer);
  });
}

bool FleetWorld::MayLackWorkers(size_t router, const std::string& answerer) {
  return reach_.MayLack(router, SimModelOf(answerer), Now());
}

// A router says no for good only if no worker of the model that is ready there could say yes.
bool FleetWorld::MayLackFeatures(size_t router, const std::string& answerer) const {
  std::set<std::string> ready, able;
  for (const WorkerStatus& status : routers_[router]->pipeline->Workers()) {
    if (status.phase != "ready") continue;
    ready.insert(status.model_id);
    for (const auto& worker : workers_) {
      const bool known = worker->target() == status.target && EpochOf(status) == worker->epoch();
      if (known && !worker->plain()) able.insert(status.model_id);
    }
  }
  if (ready.empty()) {  // it goes by those that it knew
    return scenario_.Has(FleetFault::Kind::kUpdateBinary) || scenario_.plain.front();
  }
  return answerer.empty() ? ready != able : !able.contains(SimModelOf(answerer));
}

void FleetWorld::Violate(const std::string& what) {
  if (result_.violations.size() >= 10) return;
  result_.violations.push_back(std::to_string(world_.clock().Now()) + ": " + what);
}

// ------------------------------------------------------------------------------------ its life

void FleetWorld::AfterEvent() {
  Observe();
  for (size_t i = 0; i < routers_.size(); ++i) {
    if (routers_[i] == nullptr || routers_[i]->executor.stopped()) continue;
    Router& router = *routers_[i];
    const uint64_t now = router.executor.turns() + router.spoken;
    if (std::exchange(router.checked, now) != now) CheckRouter(i);
  }
}

void FleetWorld::Observe() {
  const Micros now = world_.clock().Now();
  for (size_t i = 0; i < routers_.size(); ++i) {
    for (size_t w = 0; w < workers_.size(); ++w) {
      SimWorker& worker = *workers_[w];
      Reach::State state = Reach::State::kThere;
      if (routers_[i] == nullptr || !worker.serves() || held_workers_.contains(w) ||
          held_paths_.contains({i, w, VirtualWorld::Way::kToTarget}) ||
          held_paths_.contains({i, w, VirtualWorld::Way::kFromTarget})) {
        state = Reach::State::kGone;
      } else if (routers_[i]->executor.stopped() || worker.process()->stopped()) {
        state = Reach::State::kHeldUp;
      }
      // What has begun needs a worker that takes outputs along.
      reach_.See(i, w, state, worker.plain() ? "" : worker.model_id(), now);
    }
  }
}

void FleetWorld::CheckRouter(size_t index) {
  routers_[index]->pipeline->CheckInvariants();
  CheckIndexes(index);
  CheckQuotas(index);
}

void FleetWorld::CheckQuotas(size_t index) {
  std::map<const TenantProfile*, uint32_t> live;
  for (size_t client = 0; client < clients_.size(); ++client) {
    const TenantProfile* tenant = scenario_.clients[client].ask.tenant.get();
    if (tenant == nullptr || !clients_[client]->AsksAt(index, Now())) continue;
    if (++live[tenant] > tenant->max_concurrent && tenant->max_concurrent > 0) {
      Violate("tenant " + tenant->name + " has more at once than it may");
    }
  }
}

FleetResult FleetWorld::Run(const CalmAnswers* calm) {
  const size_t faults = calm_ ? 0 : scenario_.faults.size();
  const auto over = [this, faults] {
    return healed_ >= faults && std::all_of(clients_.begin(), clients_.end(),
                                            [](const auto& client) { return client->over; });
  };
  const Micros limit = world_.clock().Now() + kPatience;
  std::function<bool()> event;
  if (calm != nullptr && !calm_) {
    event = [this] {
      AfterEvent();
      return false;
    };
  }
  while (!over() && world_.clock().Now() < limit) {
    world_.RunUntil(world_.clock().Now() + 50 * kMilli, event);
  }
  if (!over()) Violate("a client waits for ever");
  // Time for the last Cancels, and for what a lost router left to be given up.
  if (!calm_) world_.RunUntil(world_.clock().Now() + 12 * kSecond, event);
  for (const auto& router : routers_) {
    if (router == nullptr) continue;
    if (router->pipeline->LiveRequests() > 0) Violate("a router keeps a request");
    CountRouter(*router);
  }
  if (calm != nullptr) Judge(*calm);
  for (size_t i = 0; i < clients_.size(); ++i) {
    result_.answers[i] = std::move(clients_[i]->choices);
    result_.prompts[i] = std::move(clients_[i]->prompt_logprobs);
  }
  result_.trace = world_.trace();
  return std::move(result_);
}

CalmAnswers RunCalm(const FleetScenario& scenario) {
  FleetScenario calm = scenario;
  for (FleetClient& client : calm.clients) {
    client.ask.timeout_ms = 0;
    client.ask.tenant = nullptr;  // no quotas
    client.router = 0;
    client.takes_after = 0;
  }
  calm.policies = {"round-robin"};
  calm.window_tokens = 256;
  CalmAnswers answers;
  answers[kSimModel] = FleetWorld(calm, kSimModel).Run(&answers);
  if (scenario.Has(FleetFault::Kind::kUpdateModel)) {
    answers[kSimNextModel] = FleetWorld(calm, kSimNextModel).Run(&answers);
  }
  return answers;
}

FleetResult RunFleet(const FleetScenario& scenario, const CalmAnswers& calm) {
  return FleetWorld(scenario, "").Run(&calm);
}

std::vector<std::string> TraceOfFleet(const FleetScenario& scenario) {
  return FleetWorld(scenario, "").Run(nullptr).trace;
}

FleetResult RunFleetSeed(uint64_t seed) {
  const FleetScenario scenario = DrawFleet(seed);
  const CalmAnswers calm = RunCalm(scenario);
  FleetResult result = RunFleet(scenario, calm);
  for (const auto& [model, answers] : calm) {
    result.violations.insert(result.violations.begin(), answers.violations.begin(),
                             answers.violations.end());
  }
  return result;
}

}  // namespace quire::sim
