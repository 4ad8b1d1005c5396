#include "worker/rpc/attach_hub.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/release.h"

namespace quire {
namespace {

constexpr std::string_view kDeviceLost = "this worker's device was lost and is being restarted";

}  // namespace

AttachHub::AttachHub(WorkerHello worker, Executor& executor, EngineDriver& engine, Logger& log,
                     RpcMetrics& metrics)
    : worker_(std::move(worker)),
      executor_(executor),
      engine_(engine),
      log_(log),
      metrics_(metrics),
      alive_(std::make_shared<bool>(true)) {}

AttachHub::~AttachHub() { *alive_ = false; }

void AttachHub::Accept(std::unique_ptr<FrameStream> stream) {
  const SessionContext context{worker_, executor_, *this, metrics_, max_unsent_hashes_};
  auto owned = std::make_unique<AttachSession>(++last_session_, std::move(stream), context);
  AttachSession* session = owned.get();
  sessions_.emplace(session->id(), std::move(owned));
  session->Start();
  std::string_view parting;
  if (sessions_.size() > kMaxSessions) parting = "this worker has too many Attaches";
  if (device_lost_) parting = kDeviceLost;
  if (closed_) parting = "this worker is leaving";
  if (parting.empty()) return;
  metrics_.attaches_refused.Add();
  session->End(absl::UnavailableError(AbslView(parting)), parting, false);
}

AttachVerdict AttachHub::OnHello(AttachSession& session) {
  const RouterInstance router = session.router().instance;
  const uint64_t number = session.router().attach_number;
  const auto newest = newest_attach_.find(router);
  const uint64_t slip = QUIRE_BUG(attach_number_taken_twice) ? 1 : 0;
  if (newest != newest_attach_.end() && number + slip <= newest->second) {
    return {"attach number " + std::to_string(number) + " is not above " +
                std::to_string(newest->second) + ", which this router has used",
            true};
  }
  const auto current = by_router_.find(router);
  if (current == by_router_.end() && by_router_.size() >= kMaxRouters) {
    return {"this worker has 256 routers, its limit", false};
  }
  if (current != by_router_.end()) {
    metrics_.attaches_fenced.Add();
    current->second->End(absl::AbortedError("fenced by a newer Attach"),
                         "a newer Attach of this router has taken its place", true);
  }
  Remember(router, number);
  by_router_[router] = &session;
  metrics_.routers_attached.Set(static_cast<double>(by_router_.size()));
  if (session.router().wants_events) Owe(WatchCommand{router});
  log_.Info("router attached", {{"router", router.value()}, {"attach", number}});
  return {};
}

void AttachHub::Remember(RouterInstance router, uint64_t attach_number) {
  const auto [it, is_new] = newest_attach_.insert_or_assign(router, attach_number);
  if (!is_new) return;
  remembered_.push_back(router);
  if (remembered_.size() <= kMaxRememberedRouters) return;
  // Attached routers stay known: there are far fewer of them than are remembered.
  while (by_router_.contains(remembered_.front())) {
    remembered_.push_back(remembered_.front());
    remembered_.pop_front();
  }
  newest_attach_.erase(remembered_.front());
  remembered_.pop_front();
}

void AttachHub::OnSessionEnded(AttachSession& session, const absl::Status& why) {
  const RouterInstance router = session.router().instance;
  const auto it = by_router_.find(router);
  QUIRE_CHECK(it != by_router_.end() && it->second == &session);
  by_router_.erase(it);
  metrics_.routers_lost.Add();
  metrics_.routers_attached.Set(static_cast<double>(by_router_.size()));
  log_.Info("router lost", {{"router", router.value()},
                            {"attach", session.router().attach_number},
                            {"why", StatusMessage(why)}});
  if (QUIRE_BUG(router_loss_not_told)) return;
  Owe(RouterLostCommand{router});
}

void AttachHub::OnSessionGone(AttachSession& session) {
  auto node = sessions_.extract(session.id());
  QUIRE_CHECK(!node.empty());
  // Its own code is still on the stack.
  std::shared_ptr<AttachSession> gone = std::move(node.mapped());
  executor_.Post([gone] {});
  if (closed_ && sessions_.empty() && on_closed_) std::exchange(on_closed_, nullptr)();
}

void AttachHub::Owe(EngineCommand command) {
  owed_.push_back(std::move(command));
  PayOwed();
}

void AttachHub::PayOwed() {
  while (!owed_.empty()) {
    if (!engine_.TryPush(std::move(owed_.front()))) break;
    owed_.pop_front();
  }
  if (owed_.empty() || owed_timer_.running()) return;
  owed_timer_.SetIn(kOwedRetryInterval, [this] { PayOwed(); });
}

Refused AttachHub::Compile(SubmitCommand& command) {
  QUIRE_CHECK_MSG(compiler_ != nullptr, "the hello lists what this worker cannot compile");
  const RouterInstance router = command.router;
  const AttemptKey key = command.submit.key;
  auto number = std::make_shared<uint64_t>(0);  // known when the result comes
  ConstraintCompiler::Started started = compiler_->Start(
      command.submit.constraint, command.submit.tenant,
      [this, router, key, number, alive = alive_](const ConstraintCompiler::Result& result) {
        if (!*alive) return;
        Owe(GrammarCommand{router, key, *number, result.grammar, result.refused, result.took});
      });
  // From here on the compiler holds it once for all equal ones, and the engine its kind alone.
  Release(command.submit.constraint.source);
  *number = started.number;
  command.compiling = started.number;
  command.grammar = std::move(started.result.grammar);
  return started.result.refused;
}

void AttachHub::StopCompiling(uint64_t number) { compiler_->Leave(number); }

void AttachHub::ChangeAdapters(AdaptersChanged changed) {
  worker_.adapters = std::move(changed.adapters);
  held_adapters_ = std::move(changed.held);
  for (const auto& [router, session] : std::map(by_router_)) session->TellAdapters();
}

void AttachHub::OnAdapterOrder(AttachSession& session, const AdapterOrder& order) {
  QUIRE_CHECK_MSG(adapters_ != nullptr, "the hello lists what this worker cannot do");
  adapters_->Order(order, [this, id = session.id(), alive = alive_](const AdapterResult& result) {
    if (!*alive) return;
    const auto asking = sessions_.find(id);
    if (asking != sessions_.end()) asking->second->Tell(result);
  });
}

bool AttachHub::Push(EngineCommand&& command) {
  return owed_.empty() && engine_.TryPush(std::move(command));
}

// After a standstill of the whole process, or a jump of its clock, a step appears old that had no
// time to run.
void AttachHub::RanLate(Micros due) {
  const Micros since = engine_.progress().running_since_us.load();
  if (since == 0) return;
  if (since != late_step_) {
    late_step_ = late_until_ = since;
    late_ = 0;
  }
  late_ += std::max<Micros>(0, Now() - std::max(due, late_until_));
  late_until_ = Now();
}

Micros AttachHub::StepAge() const {
  const Micros since = engine_.progress().running_since_us.load();
  if (since == 0) return 0;
  return Now() - since - (since == late_step_ ? late_ : 0);
}

WorkerState AttachHub::StateNow() const {
  const int64_t limit = engine_.progress().running_limit_us.load();
  if (limit != 0 && StepAge() > limit) return WorkerState::kStuck;
  return draining_ ? WorkerState::kDraining : WorkerState::kReady;
}

StepFrame AttachHub::Pulse() const {
  StepFrame step;
  step.event_seq = event_seq_;
  step.load = load_;
  step.routers_attached = static_cast<uint32_t>(by_router_.size());
  step.state = StateNow();
  if (engine_.progress().running_since_us.load() == 0) return step;
  const auto millis = [](int64_t micros) {
    return static_cast<uint32_t>(std::clamp<int64_t>(micros / kMicrosPerMilli, 0, UINT32_MAX));
  };
  step.step_age_ms = millis(StepAge());
  step.step_limit_ms = millis(engine_.progress().running_limit_us.load());
  return step;
}

void AttachHub::OnEngineOutput() {
  engine_.TakeOutputs(outputs_);
  for (EngineOutput& output : outputs_) {
    if (output.devices_lost != devices_lost_) LoseDevice(output.devices_lost);
    Route(output);
  }
  FlushAll();
  if (!outputs_.empty() && !outputs_.back().device_lost) RegainDevice();
  CheckDrained();
}

void AttachHub::FlushAll() {
  for (const auto& [router, session] : std::map(by_router_)) session->Flush();
}

// The Attach's end is all that a router learns of its attempts: for the router the worker has died
// under them, which it must count in case they are the cause, and it resumes them as it does then.
void AttachHub::LoseDevice(uint64_t devices_lost) {
  FlushAll();
  devices_lost_ = devices_lost;
  device_lost_ = true;
  log_.Error("the device was lost: all Attaches end", {{"attached", by_router_.size()}});
  if (QUIRE_BUG(attach_outlives_the_device)) return;
  EndAll(absl::UnavailableError("the device was lost"), kDeviceLost);
}

void AttachHub::RegainDevice() {
  if (!device_lost_) return;
  QUIRE_CHECK_MSG(next_epoch_ != nullptr, "a device that can be lost needs epochs");
  if (!QUIRE_BUG(epoch_outlives_the_device)) worker_.epoch = next_epoch_();
  device_lost_ = false;
  log_.Info("the device is back: routers are let in", {{"epoch", worker_.epoch.value()}});
}

void AttachHub::Route(EngineOutput& output) {
  load_ = output.load;
  if (on_output_) on_output_(output);
  for (RouterOutput& words : output.routers) {
    const auto it = by_router_.find(words.router);
    if (it != by_router_.end()) it->second->Deliver(words);
  }
  RouteCache(output);
  if (on_record_) {
    for (const AttemptRecord& record : output.records) on_record_(record);
  }
  engine_drained_ |= output.drained;
}

// Events and parts of snapshots leave in the order in which they were made.
void AttachHub::RouteCache(const EngineOutput& output) {
  if (output.event_seq - event_seq_ != output.events.size()) {
    for (const auto& [router, session] : std::map(by_router_)) session->EventsMissed();
  }
  const std::span<const CacheEvents> events = output.events;
  size_t routed = 0;
  const auto route_until = [&](uint64_t event_seq) {
    const uint64_t end = event_seq + 1 - std::min(output.first_event_seq, event_seq + 1);
    const size_t count = std::min<size_t>(events.size(), end) - routed;
    if (count > 0) {
      for (const auto& [router, session] : std::map(by_router_)) {
        session->DeliverEvents(events.subspan(routed, count), output.first_event_seq + routed);
      }
    }
    routed += count;
    event_seq_ = event_seq;
  };
  for (const SnapshotPart& part : output.snapshot_parts) {
    if (!QUIRE_BUG(snapshot_overtakes_events)) route_until(part.event_seq);
    const auto it = by_router_.find(part.router);
    if (it != by_router_.end()) it->second->DeliverSnapshot(part);
  }
  route_until(output.event_seq);
}

uint64_t AttachHub::drain_remaining_ms() const {
  return static_cast<uint64_t>(std::max<Micros>(0, drain_move_at_ - Now()) / kMicrosPerMilli);
}

void AttachHub::Drain(Micros move_at, Micros end_at, std::function<void(bool)> done) {
  QUIRE_CHECK_MSG(!draining_, "a worker drains once");
  QUIRE_CHECK(move_at <= end_at);
  draining_ = true;
  drain_move_at_ = move_at;
  on_drained_ = std::move(done);
  Owe(DrainCommand{end_at});
  for (const auto& [router, session] : std::map(by_router_)) session->TellDraining();
  drain_timer_.Set(end_at + kDrainGrace, [this] {
    if (on_drained_) std::exchange(on_drained_, nullptr)(false);
  });
}

void AttachHub::CheckDrained() {
  if (draining_ && engine_drained_ && on_drained_) std::exchange(on_drained_, nullptr)(true);
}

void AttachHub::Close(std::string_view parting, std::function<void()> done) {
  closed_ = true;
  on_closed_ = std::move(done);
  EndAll(absl::UnavailableError("the worker leaves"), parting);
  if (sessions_.empty() && on_closed_) {
    executor_.Post([this, alive = alive_] {
      if (*alive && on_closed_) std::exchange(on_closed_, nullptr)();
    });
  }
}

void AttachHub::EndAll(const absl::Status& why, std::string_view parting) {
  std::vector<AttachSession*> open;
  for (const auto& [id, session] : sessions_) open.push_back(session.get());
  for (AttachSession* session : open) session->End(why, parting, false);
}

}  // namespace quire
