// The fleet as requests see it: pools, a model's features, and its workers as policies see them.
// Nothing here reads workers one by one unless it must.
#include <algorithm>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "router/fleet/fleet.h"

namespace quire {
namespace {

WorkerView ViewOf(const WorkerRecord& worker) {
  WorkerView view;
  view.worker = worker.index;
  view.worker_id = worker.hello.worker_id;
  view.features = worker.hello.features;
  view.adapters = worker.hello.adapters;
  view.load = worker.load;
  view.live_attempts = worker.live_attempts;
  view.unadmitted_submits = worker.unadmitted_submits;
  view.max_waiting_requests = worker.hello.limits.max_waiting_requests;
  view.routers_attached = worker.routers_attached;
  view.max_num_seqs = worker.hello.limits.max_num_seqs;
  view.block_size = worker.hello.block_size;
  view.capacity_blocks = worker.hello.capacity_blocks;
  view.numerics_id = worker.hello.numerics_id;
  return view;
}

uint64_t RowsOf(const WorkerRecord& worker) {
  return std::max<uint32_t>(1, worker.hello.limits.max_num_seqs);
}

}  // namespace

// ---- workers

void Fleet::Show(const WorkerRecord& worker) {
  WorkerView& view = views_[worker.index.value()];
  const auto [submits, tokens] = std::pair(view.unseen_submits, view.unseen_tokens);
  view = ViewOf(worker);
  SetUnseen(worker.index, worker.attached ? submits : 0, worker.attached ? tokens : 0);
}

void Fleet::SetUnseen(WorkerIndex worker, uint64_t submits, uint64_t tokens) {
  views_[worker.value()].unseen_submits = submits;
  views_[worker.value()].unseen_tokens = tokens;
}

void Fleet::Felt(const WorkerRecord& worker) {
  calm_from_ = std::max(calm_from_, worker.health.calm_from());
}

FleetView Fleet::View(const std::string& model_id, Micros now) const {
  FleetView view;
  View(model_id, now, view);
  return view;
}

void Fleet::View(const std::string& model_id, Micros now, FleetView& view) const {
  view.workers.clear();
  view.workers.reserve(workers_.size());
  Look(model_id, now, [&view](const WorkerView& worker) {
    view.workers.push_back(worker);
    return true;
  });
}

void Fleet::Look(const std::string& model_id, Micros now,
                 absl::FunctionRef<bool(const WorkerView&)> see) const {
  const ModelWorkers& model = WorkersOf(model_id);
  if (now >= calm_from_) {
    for (const WorkerIndex index : model.ready) {
      if (!see(views_[index.value()])) return;
    }
    return;
  }
  const std::vector<WorkerIndex> ejected = Ejected(model, now);
  for (const WorkerIndex index : model.ready) {
    if (std::find(ejected.begin(), ejected.end(), index) != ejected.end()) continue;
    WorkerView one = views_[index.value()];
    one.slow_start_cap = worker(index).health.SlowStartCap(now, one.max_num_seqs);
    if (!see(one)) return;
  }
}

// Those with most deaths first: when half of the ready ones are left out already, the others serve,
// since a worker that may die is better than none.
std::vector<WorkerIndex> Fleet::Ejected(const ModelWorkers& model, Micros now) const {
  std::vector<WorkerIndex> ejected;
  for (const WorkerIndex index : model.ready) {
    if (worker(index).health.Ejected(now)) ejected.push_back(index);
  }
  std::stable_sort(ejected.begin(), ejected.end(), [this](WorkerIndex left, WorkerIndex right) {
    return worker(left).health.deaths() > worker(right).health.deaths();
  });
  ejected.resize(std::min(ejected.size(), model.ready.size() / 2));
  return ejected;
}

uint32_t Fleet::EjectedCount(const std::string& model_id, Micros now) const {
  return static_cast<uint32_t>(Ejected(WorkersOf(model_id), now).size());
}

// ---- models

const ModelWorkers& Fleet::WorkersOf(const std::string& model_id) const {
  const auto known = listed_.find(model_id);
  if (known != listed_.end()) return known->second;
  if (listed_.size() >= limits_.max_pools) listed_.clear();
  return listed_.emplace(model_id, Listed(model_id)).first->second;
}

ModelWorkers Fleet::Listed(const std::string& model_id) const {
  ModelWorkers model;
  for (const WorkerRecord& worker : workers_) {
    if (worker.hello.model_id != model_id) continue;
    const bool ready = worker.phase == WorkerPhase::kReady;
    if (!model.first || (ready && model.ready.empty())) model.first = worker.index;
    const bool usable = worker.attached && worker.phase != WorkerPhase::kRefused;
    model.attached = model.attached || usable;
    if (!ready) continue;
    model.ready.push_back(worker.index);
    model.ready_rows += RowsOf(worker);
  }
  model.features = Offered(model_id, model);
  return model;
}

std::vector<std::string> Fleet::Offered(const std::string& model_id,
                                        const ModelWorkers& model) const {
  std::vector<std::string> offered;
  const std::vector<std::string>* seen = nullptr;  // most workers of a model offer the same
  for (const WorkerIndex index : model.ready) {
    const std::vector<std::string>& features = worker(index).hello.features;
    if (seen != nullptr && *seen == features) continue;
    seen = &features;
    for (const std::string& feature : features) {
      const bool listed = std::find(offered.begin(), offered.end(), feature) != offered.end();
      if (!listed) offered.push_back(feature);
    }
  }
  if (!offered.empty()) return offered;
  const WorkerRecord* like = LikeOf(model_id, model);
  return like == nullptr ? offered : like->hello.features;
}

uint32_t Fleet::ReadyCount(const std::string& model_id) const {
  return static_cast<uint32_t>(WorkersOf(model_id).ready.size());
}

// Every request for a name asks for it: it is computed once, until a worker changes.
PoolCapacity Fleet::CapacityOf(const Pool& pool) const {
  capacities_.resize(pools_.size());
  std::optional<PoolCapacity>& known = capacities_[pool.index.value()];
  if (!known) known = Capacity(pool);
  known->pool = &pool;
  return *known;
}

PoolCapacity Fleet::Capacity(const Pool& pool) const {
  const ModelWorkers& model = WorkersOf(pool.model_id);
  if (pool.adapter.empty()) {
    return {&pool, model.ready_rows, static_cast<uint32_t>(model.ready.size()), model.attached};
  }
  PoolCapacity capacity{&pool};
  for (const WorkerRecord& worker : workers_) {
    const bool usable = worker.attached && worker.phase != WorkerPhase::kRefused;
    if (!usable || worker.hello.model_id != pool.model_id) continue;
    if (!Names(worker.hello.adapters, pool.adapter)) continue;
    capacity.attached = true;
    if (worker.phase != WorkerPhase::kReady) continue;
    capacity.ready_rows += RowsOf(worker);
    ++capacity.ready_workers;
  }
  return capacity;
}

void Fleet::ForgetListed() {
  listed_.clear();
  capacities_.clear();
}

namespace {

// A name that is a model's anywhere is no adapter's.
void DropAdaptersBesideModels(std::vector<PoolCapacity>& of_name) {
  const auto is_model = [](const PoolCapacity& each) { return each.pool->adapter.empty(); };
  if (std::ranges::any_of(of_name, is_model)) std::erase_if(of_name, std::not_fn(is_model));
}

}  // namespace

std::vector<PoolCapacity> Fleet::PoolsOf(std::string_view name) const {
  std::vector<PoolCapacity> of_name;
  for (const Pool& pool : pools_) {
    if (pool.name == name) of_name.push_back(CapacityOf(pool));
  }
  DropAdaptersBesideModels(of_name);
  return of_name;
}

std::vector<std::pair<std::string_view, std::vector<PoolCapacity>>> Fleet::PoolsByName() const {
  std::vector<std::pair<std::string_view, std::vector<PoolCapacity>>> all;
  absl::flat_hash_map<std::string_view, size_t> places;
  for (const Pool& pool : pools_) {
    const auto [place, is_new] = places.emplace(pool.name, all.size());
    if (is_new) all.emplace_back(pool.name, std::vector<PoolCapacity>());
    all[place->second].second.push_back(CapacityOf(pool));
  }
  for (auto& [name, of_name] : all) DropAdaptersBesideModels(of_name);
  return all;
}

const WorkerRecord* Fleet::LikeOf(const std::string& model_id, const ModelWorkers& model) const {
  if (model.first) return &worker(*model.first);
  const auto remembered = remembered_.find(model_id);
  return remembered == remembered_.end() ? nullptr : &remembered->second;
}

const WorkerRecord* Fleet::Representative(const std::string& model_id) const {
  return LikeOf(model_id, WorkersOf(model_id));
}

const std::vector<std::string>& Fleet::FeaturesOf(const std::string& model_id) const {
  return WorkersOf(model_id).features;
}

void Fleet::CheckViews() const {
  for (const auto& [model_id, model] : listed_) {
    QUIRE_CHECK_MSG(model == Listed(model_id), "what is remembered of a model is so");
  }
  for (size_t i = 0; i < capacities_.size(); ++i) {
    if (!capacities_[i]) continue;
    const PoolCapacity is = Capacity(pools_.at(i));
    QUIRE_CHECK_MSG(capacities_[i]->ready_rows == is.ready_rows &&
                        capacities_[i]->ready_workers == is.ready_workers &&
                        capacities_[i]->attached == is.attached,
                    "what is remembered of a pool is so");
  }
  QUIRE_CHECK(views_.size() == workers_.size());
  for (const WorkerRecord& worker : workers_) {
    const WorkerView is = ViewOf(worker);
    const WorkerView& shown = views_[worker.index.value()];
    QUIRE_CHECK_MSG(shown.worker == is.worker && shown.worker_id.data() == is.worker_id.data() &&
                        shown.features.data() == is.features.data() &&
                        shown.adapters.data() == is.adapters.data() &&
                        shown.adapters.size() == is.adapters.size() &&
                        shown.numerics_id.data() == is.numerics_id.data(),
                    "a worker is shown by its own name");
    QUIRE_CHECK_MSG(shown.live_attempts == is.live_attempts &&
                        shown.unadmitted_submits == is.unadmitted_submits &&
                        shown.routers_attached == is.routers_attached &&
                        shown.load.steps_total == is.load.steps_total &&
                        shown.load.running_rows == is.load.running_rows,
                    "a worker is shown as it is now");
    QUIRE_CHECK_MSG(worker.attached || shown.unseen_submits == 0,
                    "nothing is to come from a worker that has left");
    QUIRE_CHECK(worker.health.calm_from() <= calm_from_);
  }
}

}  // namespace quire
