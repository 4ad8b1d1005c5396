#include "router/batches/runner.h"

#include <algorithm>
#include <set>
#include <utility>

namespace quire::batches {

Runner::Runner(RunWorld world) : world_(std::move(world)) {}

Runner::~Runner() {
  Stop();
  *alive_ = false;
}

void Runner::Stop() {
  stopped_ = true;
  look_timer_.Stop();
  for (auto& [id, running] : runs_) running.run->Stop();
  runs_.clear();
  world_.metrics.running.Set(0);
}

void Runner::Wake() {
  if (stopped_) return;
  if (std::exchange(looking_, true)) {
    look_again_ = true;
    return;
  }
  struct Found {
    absl::StatusOr<std::vector<OpenBatch>> open;
  };
  const auto found = std::make_shared<Found>();
  const bool taken =
      world_.disk.Run([found, &store = world_.store] { found->open = store.Look(); },
                      [this, found, alive = alive_] {
                        if (!*alive || stopped_) return;
                        looking_ = false;
                        look_timer_.SetIn(world_.store.limits().look_every, [this] { Wake(); });
                        if (found->open.ok()) {
                          Looked(*std::move(found->open));
                        } else {
                          world_.metrics.disk_errors.Add();
                          world_.log.Warning("batches cannot be looked for",
                                             {{"error", StatusMessage(found->open.status())}});
                        }
                        if (std::exchange(look_again_, false)) Wake();
                      });
  if (taken) return;
  looking_ = false;
  look_timer_.SetIn(world_.store.limits().look_every, [this] { Wake(); });
}

size_t Runner::RunningOf(const std::string& folder) const {
  return static_cast<size_t>(std::count_if(runs_.begin(), runs_.end(), [&](const auto& one) {
    return one.second.folder == folder && !one.second.only_ends;
  }));
}

bool Runner::MayBegin(const OpenBatch& open) const {
  const size_t most = world_.store.limits().max_running;
  size_t ends = 0;
  for (const auto& [id, running] : runs_) ends += running.only_ends ? 1 : 0;
  if (open.cancelled) return ends < most;
  return runs_.size() - ends < most && RunningOf(open.folder) < std::max<size_t>(1, ShareOf(most));
}

void Runner::Looked(std::vector<OpenBatch> open) {
  const Micros now = world_.executor.clock().Now();
  std::set<std::string> there;
  for (const OpenBatch& one : open) there.insert(one.id);
  std::erase_if(not_before_,
                [&](const auto& one) { return one.second <= now || !there.contains(one.first); });
  for (const OpenBatch& one : open) {
    const auto running = runs_.find(one.id);
    if (one.cancelled && running != runs_.end()) running->second.run->Cancel();
  }
  std::erase_if(open, [&](const OpenBatch& one) {
    return runs_.contains(one.id) || not_before_.contains(one.id);
  });
  for (;;) {
    const OpenBatch* next = nullptr;
    for (const OpenBatch& one : open) {
      if (runs_.contains(one.id) || !MayBegin(one)) continue;
      if (next == nullptr || RunningOf(one.folder) < RunningOf(next->folder)) next = &one;
    }
    if (next == nullptr) break;
    Begin(*next);
  }
  world_.metrics.running.Set(static_cast<double>(runs_.size()));
}

void Runner::Begin(const OpenBatch& open) {
  auto run = std::make_shared<BatchRun>(
      world_, open, [this, id = open.id](bool ended_here) { OnEnded(id, ended_here); });
  runs_[open.id] = {open.folder, open.cancelled, run};
  run->Begin();
}

// Called by the run itself, which ends once it has returned.
void Runner::OnEnded(const std::string& id, bool ended_here) {
  const auto found = runs_.find(id);
  if (found == runs_.end()) return;
  if (!ended_here) {
    not_before_[id] = world_.executor.clock().Now() + world_.store.limits().look_every;
  }
  world_.executor.Post([run = std::move(found->second.run)] {});
  runs_.erase(found);
  world_.metrics.running.Set(static_cast<double>(runs_.size()));
  Wake();
}

}  // namespace quire::batches
