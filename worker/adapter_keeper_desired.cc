// What AdapterKeeper does about --lora-dir: it looks, and makes the names so, one load at a time.
#include <algorithm>

#include "common/check.h"
#include "worker/adapter_keeper.h"

namespace quire {

struct AdapterKeeper::Seen {
  std::string unreadable;
  std::map<std::string, Wanted> wanted;
  std::map<std::string, std::string> problems;
};

// Any thread.
std::shared_ptr<AdapterKeeper::Seen> AdapterKeeper::LookAt(const std::string& dir) {
  auto seen = std::make_shared<Seen>();
  const absl::StatusOr<DesiredAdapters> desired = ReadDesiredAdapters(dir);
  if (!desired.ok()) {
    seen->unreadable = StatusMessage(desired.status());
    return seen;
  }
  seen->problems.insert(desired->problems.begin(), desired->problems.end());
  for (const DesiredAdapter& one : desired->adapters) {
    absl::StatusOr<AdapterPlace> place = PlaceInRoot(dir, one.path);
    if (!place.ok()) {
      seen->problems[one.name] = "its path " + StatusMessage(place.status());
      continue;
    }
    std::string fingerprint = FolderFingerprint(place->folder);
    seen->wanted[one.name] = {*std::move(place), std::move(fingerprint)};
  }
  return seen;
}

void AdapterKeeper::Start() {
  if (!options_.lora_dir.empty()) look_timer_.SetIn(kDesiredLookInterval, [this] { Look(); });
}

void AdapterKeeper::Look() {
  const auto seen = std::make_shared<std::shared_ptr<Seen>>();
  const bool queued =
      world_.background.Run([seen, dir = options_.lora_dir] { *seen = LookAt(dir); },
                            [this, seen, alive = alive_] {
                              if (!*alive) return;
                              TakeSeen(**seen);
                              Start();
                            });
  if (!queued) Start();
}

void AdapterKeeper::TakeSeen(Seen& seen) {
  if (!seen.unreadable.empty()) {
    if (seen.unreadable != unreadable_) {
      world_.log.Warning("--lora-dir cannot be read; the adapters stay as they are",
                         {{"reason", seen.unreadable.substr(0, 600)}});
    }
    unreadable_ = std::move(seen.unreadable);
    return;
  }
  unreadable_.clear();
  for (const auto& [entry, why] : seen.problems) {
    const auto before = problems_.find(entry);
    if (before != problems_.end() && before->second == why) continue;
    world_.log.Warning("an entry of --lora-dir cannot be served",
                       {{"name", entry}, {"reason", why}});
  }
  problems_ = std::move(seen.problems);
  wanted_ = std::move(seen.wanted);
  Reconcile();
  BeginSoon();
}

// Names go, and names whose content is in a slot are switched, at once; one of the others is loaded
// next.
void AdapterKeeper::Reconcile() {
  if (!wanted_.has_value()) return;
  size_t changes = std::erase_if(names_, [&](const auto& entry) {
    // A broken entry keeps what its name meant before.
    const bool gone = entry.second.source == Source::kDir && !wanted_->contains(entry.first) &&
                      !problems_.contains(entry.first);
    if (gone) world_.log.Info("adapter unloaded", {{"name", entry.first}});
    return gone;
  });
  std::erase_if(failed_, [&](const auto& entry) { return !wanted_->contains(entry.first); });
  desired_job_.reset();  // it may be wanted no more
  const Micros now = world_.executor.clock().Now();
  for (const auto& [name, wanted] : *wanted_) {
    const auto served = names_.find(name);
    if (served != names_.end() && served->second.source == Source::kDir &&
        served->second.folder == wanted.place.folder &&
        served->second.fingerprint == wanted.fingerprint) {
      failed_.erase(name);
      continue;
    }
    const auto failed = failed_.find(name);
    const bool tried = failed != failed_.end() && failed->second.folder == wanted.place.folder &&
                       failed->second.fingerprint == wanted.fingerprint;
    if (tried && (failed->second.again_at < 0 || now < failed->second.again_at)) continue;
    if (SwitchAtOnce(name, wanted)) {
      ++changes;
    } else if (!desired_job_.has_value() && !(running_.has_value() && running_->desired())) {
      desired_job_ = JobFor(name, wanted);
    }
  }
  world_.job_metrics.broken.Set(static_cast<double>(problems_.size() + failed_.size()));
  if (changes > 0) Tell();
}

// The folder has not changed since it was read, and what it held then is in a slot. Not while the
// engine may be giving that slot to another.
bool AdapterKeeper::SwitchAtOnce(const std::string& name, const Wanted& wanted) {
  if (placing_ != 0) return false;
  const auto known = known_.find(wanted.place.folder);
  if (known == known_.end() || wanted.fingerprint.empty() ||
      known->second.fingerprint != wanted.fingerprint || !held_.contains(known->second.digest)) {
    return false;
  }
  Job job = JobFor(name, wanted);
  if (Refusal(job).has_value()) return false;
  names_[name] = {known->second.digest, known->second.rank, Source::kDir, wanted.place.folder,
                  wanted.fingerprint};
  failed_.erase(name);
  world_.job_metrics.switches.Add();
  world_.log.Info(
      "adapter switched",
      {{"name", name}, {"path", wanted.place.folder}, {"digest", known->second.digest}});
  return true;
}

AdapterKeeper::Job AdapterKeeper::JobFor(const std::string& name, const Wanted& wanted) const {
  Job job;
  job.order.name = name;
  job.order.path = wanted.place.folder;
  job.place = wanted.place;
  job.fingerprint = wanted.fingerprint;
  return job;
}

absl::Status AdapterKeeper::LoadAtStart(const std::function<AdapterPlaced(AdapterCommand)>& place) {
  if (options_.lora_dir.empty()) return absl::OkStatus();
  const std::shared_ptr<Seen> seen = LookAt(options_.lora_dir);
  if (!seen->unreadable.empty()) return InvalidArgument("--lora-dir: " + seen->unreadable);
  for (const auto& [name, wanted] : seen->wanted) {
    Job job = JobFor(name, wanted);
    job.began = world_.executor.clock().Now();
    std::optional<Verdict> end = Refusal(job);
    if (!end.has_value()) {
      absl::StatusOr<AdapterContent> content = world_.read(job.place, HeldDigests());
      if (content.ok()) {
        job.content = *std::move(content);
        const bool held = held_.contains(job.content.digest);
        end = held ? Serve(job) : TakePlace(job, place(CommandFor(job)));
      } else {
        end = Verdict(AdapterVerdict::kInvalid, StatusMessage(content.status()));
      }
    }
    NoteEnd(job, *end);
  }
  TakeSeen(*seen);
  return absl::OkStatus();
}

}  // namespace quire
