#include "router/fleet/fleet.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"
#include "common/planted_bug.h"

namespace quire {

std::string_view WorkerPhaseName(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kConnecting:
      return "connecting";
    case WorkerPhase::kPreparing:
      return "preparing";
    case WorkerPhase::kReady:
      return "ready";
    case WorkerPhase::kDraining:
      return "draining";
    case WorkerPhase::kStuck:
      return "stuck";
    case WorkerPhase::kSilent:
      return "silent";
    case WorkerPhase::kRefused:
      return "refused";
    case WorkerPhase::kGone:
      return "gone";
  }
  return "unknown";
}

WorkerRecord& Fleet::Get(WorkerIndex index) {
  QUIRE_CHECK_MSG(index.value() < workers_.size(), "a worker index comes from AddWorker");
  return workers_[index.value()];
}
const WorkerRecord& Fleet::worker(WorkerIndex index) const {
  QUIRE_CHECK_MSG(index.value() < workers_.size(), "a worker index comes from AddWorker");
  return workers_[index.value()];
}

absl::StatusOr<WorkerIndex> Fleet::AddWorker(const std::string& target) {
  for (const WorkerRecord& worker : workers_) {
    if (worker.target == target) {
      return absl::AlreadyExistsError(AbslView("worker " + target + " is listed twice"));
    }
  }
  const auto free = std::find_if(workers_.begin(), workers_.end(), [](const WorkerRecord& worker) {
    return worker.phase == WorkerPhase::kGone;
  });
  if (free != workers_.end()) {
    const WorkerIndex index = free->index;
    *free = WorkerRecord();
    free->index = index;
    free->target = target;
    ForgetListed();
    Show(*free);
    return index;
  }
  if (workers_.size() >= limits_.max_workers) {
    return absl::ResourceExhaustedError(AbslView("worker " + target + " is over the limit of " +
                                                 std::to_string(limits_.max_workers) + " workers"));
  }
  WorkerRecord& worker = workers_.emplace_back();
  worker.index = WorkerIndex(static_cast<uint32_t>(workers_.size() - 1));
  worker.target = target;
  ForgetListed();
  views_.emplace_back();
  for (const WorkerRecord& each : workers_) Show(each);  // their strings may have moved
  return worker.index;
}

void Fleet::RemoveWorker(WorkerIndex index) {
  WorkerRecord& worker = Get(index);
  QUIRE_CHECK(!worker.attached && worker.live_attempts == 0);
  const std::string model_id = worker.hello.model_id;
  const bool known = std::any_of(pools_.begin(), pools_.end(),
                                 [&](const Pool& pool) { return pool.model_id == model_id; });
  if (known) remembered_[model_id] = worker;  // bounded by the pools
  ForgetListed();
  worker = WorkerRecord();
  worker.index = index;
  worker.phase = WorkerPhase::kGone;
  Show(worker);
}

absl::Status Fleet::AddPools(const WorkerHello& hello, int64_t now_unix_seconds) {
  for (const std::string& name : hello.served_names) {
    QUIRE_RETURN_IF_ERROR(AddPool({{}, name, hello.model_id, now_unix_seconds}));
  }
  for (const ServedAdapter& adapter : hello.adapters) {
    QUIRE_RETURN_IF_ERROR(AddPool(
        {{}, adapter.name, hello.model_id, now_unix_seconds, adapter.digest, adapter.parent}));
  }
  return absl::OkStatus();
}

absl::Status Fleet::AddPool(Pool added) {
  const bool known = std::any_of(pools_.begin(), pools_.end(), [&](const Pool& pool) {
    return pool.name == added.name && pool.model_id == added.model_id &&
           pool.adapter == added.adapter;
  });
  if (known) return absl::OkStatus();
  if (pools_.size() >= limits_.max_pools && !ForgetPool()) {
    return absl::ResourceExhaustedError(AbslView((added.adapter.empty() ? "model " : "adapter ") +
                                                 added.name + " is over the limit of " +
                                                 std::to_string(limits_.max_pools) + " pools"));
  }
  added.index = PoolIndex(static_cast<uint32_t>(pools_.size()));
  pools_.push_back(std::move(added));
  return absl::OkStatus();
}

// Makes room: the first pool without workers is removed, since it is left over from an old update.
bool Fleet::ForgetPool() {
  const auto forgotten = std::find_if(pools_.begin(), pools_.end(), [&](const Pool& pool) {
    return std::none_of(workers_.begin(), workers_.end(), [&](const WorkerRecord& worker) {
      return worker.attached && worker.hello.model_id == pool.model_id &&
             (pool.adapter.empty() || Names(worker.hello.adapters, pool.adapter));
    });
  });
  if (forgotten == pools_.end()) return false;
  if (forgotten->adapter.empty()) remembered_.erase(forgotten->model_id);
  pools_.erase(forgotten);
  NumberPools();
  return true;
}

void Fleet::NumberPools() {
  ForgetListed();
  for (size_t i = 0; i < pools_.size(); ++i) {
    pools_[i].index = PoolIndex(static_cast<uint32_t>(i));
  }
}

// Names of adapters that every worker of the model has given up, as far as the last word of each
// goes: a worker that is away may come back with them. With `contents`, what they meant as well.
void Fleet::ForgetAdapterPools(const std::string& model_id, bool contents) {
  const auto has = [contents](const WorkerRecord& worker, const Pool& pool) {
    return worker.hello.model_id == pool.model_id &&
           std::ranges::any_of(worker.hello.adapters, [&](const ServedAdapter& each) {
             return each.name == pool.name && (!contents || each.digest == pool.adapter);
           });
  };
  const size_t forgotten = std::erase_if(pools_, [&](const Pool& pool) {
    return pool.model_id == model_id && !pool.adapter.empty() &&
           std::ranges::none_of(workers_, [&](const auto& each) { return has(each, pool); });
  });
  if (forgotten > 0) NumberPools();
}

void Fleet::AdaptersChanged(WorkerIndex index, const quire::AdaptersChanged& changed,
                            int64_t now_unix_seconds) {
  WorkerRecord& worker = Get(index);
  QUIRE_CHECK_MSG(worker.attached, "changes come on an Attach");
  worker.hello.adapters = changed.adapters;
  for (const std::string& digest : changed.held)
    worker.hello.adapters.push_back({"", digest, "", 0});
  std::ranges::sort(worker.hello.adapters, {}, &ServedAdapter::digest);  // as Holds needs them
  ForgetListed();
  Show(worker);
  if (!worker.refusal.empty()) return;
  ForgetAdapterPools(worker.hello.model_id, /*contents=*/true);
  // Beyond max_pools a name stays unknown here; those that are known are served as before.
  WorkerHello named;
  named.model_id = worker.hello.model_id;
  named.adapters = changed.adapters;
  (void)AddPools(named, now_unix_seconds);
}

// A model's bundle digest is forgotten with its pools and workers, so that workers that greet under
// ever new model_ids fill nothing.
void Fleet::ForgetTexts() {
  if (texts_.size() < 2 * limits_.max_pools) return;
  std::erase_if(texts_, [&](const auto& entry) {
    const std::string& model_id = entry.first;
    return std::none_of(pools_.begin(), pools_.end(),
                        [&](const Pool& pool) { return pool.model_id == model_id; }) &&
           std::none_of(workers_.begin(), workers_.end(), [&](const WorkerRecord& worker) {
             return worker.attached && worker.hello.model_id == model_id;
           });
  });
}

const WorkerRecord* Fleet::OtherOf(WorkerIndex worker, const std::string& worker_id, Epoch epoch,
                                   Micros now) const {
  if (worker_id.empty()) return nullptr;
  for (const WorkerRecord& other : workers_) {
    if (other.index == worker || other.phase == WorkerPhase::kGone) continue;
    if (other.hello.worker_id != worker_id) continue;
    const bool just_now = other.detached_at != 0 && now - other.detached_at < kSameProcessPause;
    if (other.attached || (other.hello.epoch == epoch && just_now)) return &other;
  }
  return nullptr;
}

absl::Status Fleet::CheckUnique(WorkerIndex index, const WorkerHello& hello, Micros now) {
  const WorkerRecord* other = OtherOf(index, hello.worker_id, hello.epoch, now);
  if (other == nullptr) return absl::OkStatus();
  WorkerRecord& worker = Get(index);
  worker.refused_id = hello.worker_id;
  worker.refused_epoch = hello.epoch;
  const bool same = other->hello.epoch == hello.epoch;
  return absl::AlreadyExistsError(
      AbslView("worker_id " + hello.worker_id + " is already attached at " + other->target +
               (same ? ": this is the same process under another address; name it once"
                     : ": another process; give one of them a --worker-id of its own")));
}

bool Fleet::MayDial(WorkerIndex index, Micros now) {
  WorkerRecord& worker = Get(index);
  if (OtherOf(index, worker.refused_id, worker.refused_epoch, now) != nullptr) return false;
  worker.refused_id.clear();
  return true;
}

absl::Status Fleet::Attached(WorkerIndex index, const WorkerHello& hello,
                             int64_t now_unix_seconds) {
  WorkerRecord& worker = Get(index);
  QUIRE_CHECK_MSG(!worker.attached, "an Attach ends before the next one begins");
  worker.attached = true;
  worker.draining = false;
  worker.stuck = false;
  worker.silent = false;
  worker.given_up = false;
  worker.state = WorkerState::kStarting;
  worker.hello = hello;
  std::ranges::sort(worker.hello.adapters, {}, &ServedAdapter::digest);  // as Holds needs them
  ForgetListed();
  worker.load = {};
  worker.refusal.clear();
  worker.last_error.clear();
  ForgetTexts();
  Text& text = texts_[hello.model_id];
  if (text.sha256.empty()) text.sha256 = hello.text_bundle_sha256;
  if (text.sha256 != hello.text_bundle_sha256) {
    worker.refusal = "its text bundle differs from the first one seen of its model";
  } else if (std::string pin = RefusalByPin(rules_, hello, pools_); !pin.empty()) {
    worker.refusal = std::move(pin);
  } else if (absl::Status pools = AddPools(hello, now_unix_seconds); !pools.ok()) {
    worker.refusal = StatusMessage(pools);
  }
  ForgetAdapterPools(hello.model_id, /*contents=*/false);
  Settle(worker);
  if (worker.refusal.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      AbslView("worker " + worker.target + " is refused: " + worker.refusal));
}

void Fleet::Detached(WorkerIndex index, const std::string& why, Micros now) {
  WorkerRecord& worker = Get(index);
  if (worker.attached) worker.detached_at = now;
  worker.last_error = why;
  worker.attached = false;
  worker.load = {};
  Settle(worker);
}

void Fleet::Draining(WorkerIndex index) {
  WorkerRecord& worker = Get(index);
  worker.draining = true;
  worker.health.Draining();
  Settle(worker);
}

DeathNews Fleet::Greeted(WorkerIndex index, Epoch epoch, Micros now) {
  const DeathNews news = Get(index).health.Greeted(epoch, now);
  Felt(Get(index));
  return news;
}

void Fleet::LinkLost(WorkerIndex index, bool for_silence, Micros now) {
  WorkerRecord& worker = Get(index);
  worker.given_up = worker.given_up || for_silence;
  if (for_silence) CheckGivenUp(worker.hello.model_id);
  worker.health.LinkLost(now);
}

DeathNews Fleet::Refused(WorkerIndex index, Micros now) {
  Get(index).given_up = false;  // it is known to be gone
  return Get(index).health.Refused(now);
}

DeathNews Fleet::StepSeen(WorkerIndex index, Micros now) {
  WorkerRecord& worker = Get(index);
  const DeathNews news = worker.health.StepSeen(worker.stuck, now);
  if (news != DeathNews::kNothing) Felt(worker);
  return news;
}

void Fleet::CheckGivenUp(const std::string& model_id) const {
  size_t pool = 0;
  size_t gone = 0;
  for (const WorkerRecord& worker : workers_) {
    if (worker.hello.model_id != model_id || (!worker.attached && !worker.given_up)) continue;
    ++pool;
    gone += worker.given_up ? 1 : 0;
  }
  QUIRE_CHECK_MSG(2 * gone <= pool, "silence takes half of a pool at most");
}

bool Fleet::MayGiveUp(WorkerIndex index) const {
  const std::string& model_id = worker(index).hello.model_id;
  size_t pool = 0;
  size_t gone = 1;  // with this one
  for (const WorkerRecord& other : workers_) {
    if (other.hello.model_id != model_id) continue;
    if (!other.attached && !other.given_up) continue;
    ++pool;
    gone += other.given_up ? 1 : 0;
  }
  return 2 * gone <= pool || QUIRE_BUG(more_than_half_given_up);
}

bool Fleet::MayGiveUpSilent(WorkerIndex index) {
  if (MayGiveUp(index)) return true;
  WorkerRecord& worker = Get(index);
  worker.silent = true;
  Settle(worker);
  return false;
}

void Fleet::Stepped(WorkerIndex index, const StepFrame& step, Micros now) {
  WorkerRecord& worker = Get(index);
  QUIRE_CHECK_MSG(worker.attached, "steps come on an Attach");
  if (step.load.steps_total != worker.load.steps_total) worker.last_progress_at = now;
  const auto standing = [&worker] {
    return std::tuple(worker.state, worker.stuck, worker.silent, worker.draining);
  };
  const auto before = standing();
  worker.load = step.load;
  worker.state = step.state;
  worker.routers_attached = std::max<uint32_t>(1, step.routers_attached);
  const bool over = step.step_limit_ms != 0 && step.step_age_ms > step.step_limit_ms;
  worker.stuck = over || step.state == WorkerState::kStuck;
  worker.silent = false;
  if (step.state == WorkerState::kDraining) {
    worker.draining = true;
    worker.health.Draining();
  }
  if (standing() != before) return Settle(worker);
  WorkerView& view = views_[index.value()];
  view.load = worker.load;
  view.routers_attached = worker.routers_attached;
}

void Fleet::TextReady(const std::string& model_id) {
  texts_[model_id].ready = true;
  for (WorkerRecord& worker : workers_) Settle(worker);
}

void Fleet::TextRefused(const std::string& model_id, const std::string& reason) {
  texts_[model_id].refusal = reason;
  for (WorkerRecord& worker : workers_) Settle(worker);
}

void Fleet::Settle(WorkerRecord& worker) {
  const WorkerPhase before = worker.phase;
  worker.phase = PhaseOf(worker);
  if (worker.phase != before) ForgetListed();
  Show(worker);
}

WorkerPhase Fleet::PhaseOf(WorkerRecord& worker) {
  if (!worker.attached) return WorkerPhase::kConnecting;
  const Text& text = texts_[worker.hello.model_id];
  if (worker.refusal.empty()) worker.refusal = text.refusal;
  if (!worker.refusal.empty()) return WorkerPhase::kRefused;
  if (worker.draining) return WorkerPhase::kDraining;
  if (worker.stuck) return WorkerPhase::kStuck;
  if (worker.silent) return WorkerPhase::kSilent;
  const bool ready = text.ready && worker.state == WorkerState::kReady;
  return ready ? WorkerPhase::kReady : WorkerPhase::kPreparing;
}

void Fleet::AttemptStarted(WorkerIndex index) {
  WorkerRecord& worker = Get(index);
  views_[index.value()].live_attempts = ++worker.live_attempts;
  views_[index.value()].unadmitted_submits = ++worker.unadmitted_submits;
}

void Fleet::AttemptAnswered(WorkerIndex index) {
  WorkerRecord& worker = Get(index);
  QUIRE_CHECK(worker.unadmitted_submits > 0);
  views_[index.value()].unadmitted_submits = --worker.unadmitted_submits;
}

void Fleet::AttemptEnded(WorkerIndex index, bool was_answered) {
  WorkerRecord& worker = Get(index);
  QUIRE_CHECK(worker.live_attempts > 0);
  views_[index.value()].live_attempts = --worker.live_attempts;
  if (!was_answered) AttemptAnswered(index);
}

uint32_t Fleet::RoutersAttached() const {
  uint32_t most = 1;
  for (const WorkerRecord& worker : workers_) {
    if (worker.attached) most = std::max(most, worker.routers_attached);
  }
  return most;
}

void Fleet::CheckInvariants() const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const WorkerRecord& worker = workers_[i];
    QUIRE_CHECK(worker.index.value() == i);
    QUIRE_CHECK(worker.unadmitted_submits <= worker.live_attempts);
    const bool away =
        worker.phase == WorkerPhase::kConnecting || worker.phase == WorkerPhase::kGone;
    QUIRE_CHECK(worker.attached != away);
    QUIRE_CHECK(worker.target.empty() == (worker.phase == WorkerPhase::kGone));
    QUIRE_CHECK((worker.phase == WorkerPhase::kRefused) == !worker.refusal.empty() ||
                !worker.attached);
  }
  for (size_t i = 0; i < pools_.size(); ++i) QUIRE_CHECK(pools_[i].index.value() == i);
  CheckViews();
}

}  // namespace quire
