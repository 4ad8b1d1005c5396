// One life of a fleet: builds it, lets its faults happen, and judges what its clients got.
//
// One thread. fleet_sim.cc builds and runs, faults.cc is what goes wrong, judge.cc the oracle.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/pipeline/make_pipeline.h"
#include "router/records/request_record.h"
#include "tests/support/fleet_sim/client.h"
#include "tests/support/fleet_sim/fleet_sim.h"
#include "tests/support/fleet_sim/reach.h"
#include "tests/support/fleet_sim/sim_worker.h"
#include "tests/support/fleet_sim/stoppable_stream.h"
#include "tests/support/fleet_sim/wire_watch.h"

namespace quire::sim {

// As of its last greeting: the router may not know yet who is there now.
inline Epoch EpochOf(const WorkerStatus& status) {
  return Epoch(std::strtoull(status.epoch.c_str(), nullptr, 16));
}

class FleetWorld final : private RecordSink, public ClientHost {
 public:
  // `calm`: nothing goes wrong, one router, and all workers have the model `calm_model`.
  FleetWorld(const FleetScenario& scenario, const std::string& calm_model);
  ~FleetWorld() override { routers_.clear(); }
  // Without `calm` nothing is judged.
  FleetResult Run(const CalmAnswers* calm);

  Pipeline* Serving(size_t router) override;
  void Asked(size_t router, RequestId request, bool streaming) override;
  void Told(size_t router, RequestId request, uint32_t choice, uint64_t count) override;
  void Took(size_t router, RequestId request, uint32_t choice, uint64_t count) override;
  bool MayBeServed(const std::string& answerer) const override;
  bool MayLackWorkers(size_t router, const std::string& answerer) override;
  bool MayLackFeatures(size_t router, const std::string& answerer) const override;
  size_t router_count() const override { return routers_.size(); }
  Micros Now() override { return world_.clock().Now(); }
  void At(Micros after, std::function<void()> work) override {
    world_.executor().PostAt(world_.clock().Now() + after, std::move(work));
  }
  void Trace(const std::string& what) override {
    world_.Trace(std::to_string(world_.clock().Now()) + " " + what);
  }
  void Violate(const std::string& what) override;
  void Meet(const std::string& what, uint64_t count = 1) override { result_.met[what] += count; }

 private:
  struct Router {
    Router(VirtualWorld& world, const std::string& name, WireWatch one_watch)
        : watch(std::move(one_watch)),
          executor(world.executor()),
          background(executor, 200),
          dialer(world.MakeDialer(name), executor, [this] { return watch.NewStream(); }) {}
    WireWatch watch;
    StoppableExecutor executor;
    VirtualBackground background;
    StoppableDialer dialer;
    Metrics metrics;
    std::unique_ptr<Pipeline> pipeline;
    uint64_t asked = 0;    // requests that it was given
    uint64_t spoken = 0;   // times that a client spoke to it
    uint64_t checked = 0;  // as of so many of these and of its turns
  };

  void StartWorkers(const std::string& calm_model);
  void StartRouter(size_t index);
  void CountRouter(const Router& router);
  // After every event of the world: who can reach whom, and what holds of the routers that did
  // something in it.
  void AfterEvent();
  void Observe();
  void CheckRouter(size_t index);
  void CheckQuotas(size_t index);

  // What goes wrong.
  void Begin(const FleetFault& fault);
  void Heal(const FleetFault& fault);
  void BeginWorker(const FleetFault& fault, SimWorker& worker);
  void BeginRouter(const FleetFault& fault);
  void KillRouter(size_t index);
  void KillWorker(SimWorker& worker);
  void Poisoned(SimWorker& worker);
  void Cut(size_t worker);
  void Reset(size_t worker, Micros until);
  void Hold(size_t worker, bool held);
  void HoldPath(size_t router, size_t worker, VirtualWorld::Way way, bool held);
  void HoldAll(size_t router, bool held);
  // Stops a process for a moment again and again, and lets it go on.
  void HoldUp(std::function<StoppableExecutor*()> process, Micros until);
  StoppableExecutor* RouterProcess(size_t index);

  // The oracle.
  void Judge(const CalmAnswers& calm);
  void JudgeAnswer(size_t index, const CalmAnswers& calm);
  void JudgeSuspect(const FleetClient& plan);
  void JudgeRecord(const RequestRecord& record);
  void JudgeIndexes();
  void CheckIndexes(size_t router);
  bool HasAny(std::initializer_list<FleetFault::Kind> kinds) const;
  void Write(const RequestRecord& record) override { records_.push_back(record); }

  const FleetScenario& scenario_;
  const bool calm_;
  VirtualWorld world_;
  NullLogger log_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<std::unique_ptr<Router>> routers_;
  std::vector<std::unique_ptr<FleetSimClient>> clients_;
  std::vector<RequestRecord> records_;
  // By worker, epoch, router, request and attempt: what workers booked.
  using AttemptPlace = std::tuple<std::string, uint64_t, uint64_t, uint64_t, uint32_t>;
  std::map<AttemptPlace, AttemptRecord> booked_;
  std::set<std::pair<std::string, uint64_t>> dead_;  // workers' epochs that died, or seemed to
  uint64_t poison_kills_ = 0;
  size_t healed_ = 0;
  std::set<size_t> held_workers_;
  std::set<std::tuple<size_t, size_t, VirtualWorld::Way>> held_paths_;  // by router and worker
  Reach reach_;
  FleetResult result_;
};

}  // namespace quire::sim
