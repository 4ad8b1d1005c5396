// What goes wrong in a fleet, and how it is mended.
#include <algorithm>
#include <utility>

#include "tests/support/fleet_sim/fleet_world.h"

namespace quire::sim {
namespace {

using Kind = FleetFault::Kind;
constexpr Micros kMilli = kMicrosPerMilli;
constexpr Micros kLongestLeap = 8 * kMicrosPerSecond;  // a client may be slow for 30 s
constexpr int64_t kYears = 3 * 365 * 24 * 3600;

VirtualWorld::Way WayOf(const FleetFault& fault) {
  return fault.other_way ? VirtualWorld::Way::kToTarget : VirtualWorld::Way::kFromTarget;
}

}  // namespace

void FleetWorld::KillRouter(size_t index) {
  if (routers_[index] == nullptr) return;
  CountRouter(*routers_[index]);
  routers_[index]->executor.Stop();  // the dead say nothing
  routers_[index].reset();
  for (const auto& client : clients_) client->RouterDied(index);
}

void FleetWorld::KillWorker(SimWorker& worker) {
  if (!worker.up()) return;
  // A router that could not hear a worker's good-bye takes its end for a death.
  const bool heard =
      std::all_of(scenario_.faults.begin(), scenario_.faults.end(), [](const FleetFault& fault) {
        return fault.kind == Kind::kCrash || fault.kind == Kind::kFreeze ||
               fault.kind == Kind::kDrain || fault.kind == Kind::kUpdateModel ||
               fault.kind == Kind::kUpdateBinary;
      });
  if (!worker.draining() || !heard) dead_.insert({worker.name(), worker.epoch().value()});
  worker.Crash();
}

void FleetWorld::Poisoned(SimWorker& worker) {
  const Epoch epoch = worker.epoch();
  world_.executor().Post([this, &worker, epoch] {
    if (!worker.up() || worker.epoch() != epoch) return;
    if (!worker.draining()) ++poison_kills_;  // else its end is no death
    Trace(worker.name() + " is poisoned");
    KillWorker(worker);
    At(static_cast<Micros>(200 + world_.rng().Next() % 1300) * kMilli,
       [&worker] { worker.Start(); });
  });
}

void FleetWorld::Cut(size_t worker) {
  world_.CutLinks(workers_[worker]->target());
  reach_.BreakWorker(worker, world_.clock().Now());
}

void FleetWorld::Reset(size_t worker, Micros until) {
  if (world_.clock().Now() >= until) return;
  Cut(worker);
  At(500 * kMilli, [this, worker, until] { Reset(worker, until); });
}

void FleetWorld::Hold(size_t worker, bool held) {
  world_.HoldLinks(workers_[worker]->target(), held);
  held_workers_.erase(worker);
  if (held) held_workers_.insert(worker);
}

void FleetWorld::HoldPath(size_t router, size_t worker, VirtualWorld::Way way, bool held) {
  world_.HoldPath("router-" + std::to_string(router), workers_[worker]->target(), way, held);
  const std::tuple path(router, worker, way);
  held_paths_.erase(path);
  if (held) held_paths_.insert(path);
}

void FleetWorld::HoldAll(size_t router, bool held) {
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    HoldPath(router, worker, VirtualWorld::Way::kToTarget, held);
    HoldPath(router, worker, VirtualWorld::Way::kFromTarget, held);
  }
}

void FleetWorld::HoldUp(std::function<StoppableExecutor*()> process, Micros until) {
  if (world_.clock().Now() >= until) return;
  if (StoppableExecutor* now = process()) now->Stop();
  const Micros held = static_cast<Micros>(50 + world_.rng().Next() % 350) * kMilli;
  At(held, [process] {
    if (StoppableExecutor* now = process()) now->GoOn();
  });
  At(held + 100 * kMilli, [this, process, until] { HoldUp(process, until); });
}

StoppableExecutor* FleetWorld::RouterProcess(size_t index) {
  return routers_[index] == nullptr ? nullptr : &routers_[index]->executor;
}

void FleetWorld::Begin(const FleetFault& fault) {
  SimWorker& worker = *workers_[fault.worker];
  Trace("fault " + std::to_string(static_cast<int>(fault.kind)) + " " + worker.name() + " router-" +
        std::to_string(fault.router));
  Meet("faults of kind " + std::to_string(static_cast<int>(fault.kind)));
  BeginWorker(fault, worker);
  BeginRouter(fault);
}

void FleetWorld::BeginWorker(const FleetFault& fault, SimWorker& worker) {
  const Micros until = world_.clock().Now() + fault.lasts;
  switch (fault.kind) {
    case Kind::kCut:
      return Cut(fault.worker);
    case Kind::kCrash:
      return KillWorker(worker);
    case Kind::kHold:
      return Hold(fault.worker, true);
    case Kind::kFreeze:
      if (worker.up()) dead_.insert({worker.name(), worker.epoch().value()});  // stuck, maybe
      return worker.SetFrozen(true);
    case Kind::kDrain:
    case Kind::kUpdateModel:
    case Kind::kUpdateBinary:
      return worker.Drain(fault.lasts / 3);
    case Kind::kRefuse:
      if (worker.up()) dead_.insert({worker.name(), worker.epoch().value()});
      return worker.Unlisten();
    case Kind::kResets:
      return Reset(fault.worker, until);
    case Kind::kWorkerStop:
      if (worker.up()) worker.process()->Stop();
      return;
    case Kind::kWorkerLate:
      return HoldUp([&worker] { return worker.process(); }, until);
    case Kind::kWorkerLeap:
      if (worker.up()) worker.process()->Leap(std::min(fault.lasts, kLongestLeap));
      return reach_.BreakWorker(fault.worker, world_.clock().Now());
    case Kind::kWallJump:
      if (worker.up()) worker.process()->SetWall(fault.other_way ? kYears : -kYears);
      return;
    default:
      return;
  }
}

void FleetWorld::BeginRouter(const FleetFault& fault) {
  StoppableExecutor* process = RouterProcess(fault.router);
  switch (fault.kind) {
    case Kind::kHoldOneWay:
      return HoldPath(fault.router, fault.worker, WayOf(fault), true);
    case Kind::kRouterKill:
      return KillRouter(fault.router);
    case Kind::kRouterStop:
      if (process != nullptr) process->Stop();
      return;
    case Kind::kHoldAll:
      return HoldAll(fault.router, true);
    case Kind::kRouterLate:
      return HoldUp([this, index = fault.router] { return RouterProcess(index); },
                    world_.clock().Now() + fault.lasts);
    case Kind::kRouterLeap:
      if (process != nullptr) process->Leap(std::min(fault.lasts, kLongestLeap));
      return reach_.LeapRouter(fault.router, std::min(fault.lasts, kLongestLeap), Now());
    case Kind::kWallJump:
      if (process != nullptr) process->SetWall(fault.other_way ? -kYears : kYears);
      return;
    default:
      return;
  }
}

void FleetWorld::Heal(const FleetFault& fault) {
  SimWorker& worker = *workers_[fault.worker];
  Trace("heals " + std::to_string(static_cast<int>(fault.kind)));
  switch (fault.kind) {
    case Kind::kHoldAll:
      return HoldAll(fault.router, false);
    case Kind::kCrash:
      return worker.Start();
    case Kind::kHold:
      return Hold(fault.worker, false);
    case Kind::kHoldOneWay:
      return HoldPath(fault.router, fault.worker, WayOf(fault), false);
    case Kind::kFreeze:
      return worker.SetFrozen(false);
    case Kind::kDrain:
      if (worker.draining()) KillWorker(worker);
      return worker.Start();
    case Kind::kUpdateModel:
      KillWorker(worker);
      worker.SetModel(worker.model_id() == kSimModel ? kSimNextModel : kSimModel);
      return worker.Start();
    case Kind::kUpdateBinary:
      KillWorker(worker);
      worker.SetPlain(!worker.plain());
      return worker.Start();
    case Kind::kRefuse:
      return worker.Listen();
    case Kind::kWorkerStop:
      if (worker.up()) worker.process()->GoOn();
      return;
    case Kind::kRouterKill:
      return StartRouter(fault.router);
    case Kind::kRouterStop:
      if (StoppableExecutor* process = RouterProcess(fault.router)) process->GoOn();
      return;
    default:
      return;  // it was over at once, or ends by itself
  }
}

}  // namespace quire::sim
