#include "worker/adapter_keeper.h"

#include <algorithm>

#include "common/check.h"
#include "common/utf8.h"
#include "common/wire/worker_frames.h"
#include "worker/adapter_setup.h"

namespace quire {
namespace {

constexpr size_t kMaxShownBytes = 600;

// Whatever a path or a file has put into it.
std::string OneLine(std::string_view text) { return OnOneLine(text, kMaxShownBytes); }

}  // namespace

AdapterKeeper::AdapterKeeper(AdapterKeeperOptions options, AdapterKeeperWorld world,
                             const AdapterTable& at_start)
    : options_(std::move(options)), world_(std::move(world)) {
  QUIRE_CHECK(!options_.served_names.empty() && options_.max_jobs > 0);
  for (const AdapterInfo& info : at_start.List()) {
    names_[info.name] = {info.digest, info.rank, Source::kFlag, info.path, ""};
    held_[info.digest] = {*at_start.SlotOf(info.digest), nullptr};
  }
  world_.job_metrics.contents.Set(static_cast<double>(held_.size()));
}

AdapterKeeper::~AdapterKeeper() { *alive_ = false; }

// ------------------------------------------------------------------------------------------ jobs

void AdapterKeeper::Order(const AdapterOrder& order, std::function<void(AdapterResult)> done) {
  QUIRE_CHECK(done != nullptr);
  const bool busy = running_.has_value() && !running_->desired();
  if (orders_.size() + (busy ? 1 : 0) >= options_.max_jobs) {
    world_.job_metrics.jobs_refused.Add();
    AdapterResult refused{order.number, AdapterVerdict::kQueueFull, "", "", kAdapterJobsRetryMs};
    refused.message = std::to_string(options_.max_jobs) + " orders about adapters are under way";
    world_.executor.Post([done = std::move(done), refused] { done(refused); });
    return;
  }
  Job job;
  job.order = order;
  job.done = std::move(done);
  orders_.push_back(std::move(job));
  BeginSoon();
}

void AdapterKeeper::BeginSoon() {
  const bool busy = running_.has_value() && !running_->desired();
  world_.job_metrics.jobs.Set(static_cast<double>(orders_.size() + (busy ? 1 : 0)));
  world_.executor.Post([this, alive = alive_] {
    if (*alive) BeginNext();
  });
}

// Orders, and between two of them what --lora-dir names.
void AdapterKeeper::BeginNext() {
  if (running_.has_value() || (orders_.empty() && !desired_job_.has_value())) return;
  if (desired_job_.has_value()) {
    running_ = std::exchange(desired_job_, std::nullopt);
  } else {
    running_ = std::move(orders_.front());
    orders_.pop_front();
  }
  running_->began = world_.executor.clock().Now();
  if (running_->order.kind == AdapterOrder::Kind::kUnload) {
    return Finish(Unload(running_->order.name));
  }
  if (std::optional<Verdict> refusal = Refusal(*running_)) return Finish(*std::move(refusal));
  Read();
}

std::optional<AdapterKeeper::Verdict> AdapterKeeper::Refusal(Job& job) const {
  const std::string& name = job.order.name;
  if (absl::Status usable = CheckUsableAdapterName(name, options_.served_names); !usable.ok()) {
    return Verdict(AdapterVerdict::kInvalid, "the name " + StatusMessage(usable));
  }
  const auto served = names_.find(name);
  if (served == names_.end() && names_.size() >= static_cast<size_t>(kMaxServedAdapters)) {
    return Verdict(AdapterVerdict::kNoSlot, std::to_string(kMaxServedAdapters) +
                                                " names are served, the most; unload one first");
  }
  if (job.desired()) return std::nullopt;
  if (served != names_.end() && served->second.source == Source::kDir) {
    return Verdict(AdapterVerdict::kInvalid,
                   "--lora-dir says what this name means; change it there");
  }
  if (served != names_.end() && !job.order.replace) {
    return Verdict(AdapterVerdict::kAlready, "it is loaded already");
  }
  const bool anywhere = job.order.any_path && options_.on_loopback;
  if (anywhere && (options_.lora_dir.empty() || job.order.path.starts_with('/'))) {
    job.place = {job.order.path, ""};
    return std::nullopt;
  }
  if (options_.lora_dir.empty()) {
    return Verdict(AdapterVerdict::kInvalid,
                   "adapters are loaded from --lora-dir alone here, and the worker has none");
  }
  absl::StatusOr<AdapterPlace> place = PlaceInRoot(options_.lora_dir, job.order.path);
  if (!place.ok()) {
    return Verdict(AdapterVerdict::kInvalid, "the path " + StatusMessage(place.status()));
  }
  job.place = *std::move(place);
  if (anywhere) job.place.root.clear();
  return std::nullopt;
}

AdapterKeeper::Verdict AdapterKeeper::Unload(const std::string& name) {
  const auto served = names_.find(name);
  if (served == names_.end()) return {AdapterVerdict::kNotFound, "it is not loaded"};
  if (served->second.source == Source::kDir) {
    return {AdapterVerdict::kInvalid, "--lora-dir names it; remove it there"};
  }
  names_.erase(served);
  Tell();
  return {AdapterVerdict::kDone, ""};
}

void AdapterKeeper::Read() {
  using Read = absl::StatusOr<AdapterContent>;
  const auto read = std::make_shared<Read>(absl::UnknownError("it was not read"));
  const bool queued = world_.background.Run([read, place = running_->place, held = HeldDigests(),
                                             reader = world_.read] { *read = reader(place, held); },
                                            [this, read, alive = alive_] {
                                              if (*alive) OnRead(std::move(*read));
                                            });
  if (!queued) Finish({AdapterVerdict::kQueueFull, "no thread is free to read it"});
}

void AdapterKeeper::OnRead(absl::StatusOr<AdapterContent> content) {
  QUIRE_CHECK(running_.has_value() && placing_ == 0);
  if (!content.ok()) {
    const absl::Status& why = content.status();
    const AdapterVerdict verdict = absl::IsNotFound(why)      ? AdapterVerdict::kNotFound
                                   : absl::IsUnavailable(why) ? AdapterVerdict::kQueueFull
                                                              : AdapterVerdict::kInvalid;
    return Finish({verdict, StatusMessage(why)});
  }
  running_->content = *std::move(content);
  if (held_.contains(running_->content.digest)) return Finish(Serve(*running_));
  QUIRE_CHECK_MSG(running_->content.weights != nullptr, "what is not held has been packed");
  AdapterCommand command = CommandFor(*running_);
  command.number = placing_ = ++last_command_;
  if (world_.push(std::move(command))) return;
  placing_ = 0;
  Finish({AdapterVerdict::kQueueFull, "the engine's queue is full"});
}

AdapterCommand AdapterKeeper::CommandFor(const Job& job) const {
  AdapterCommand command;
  command.digest = job.content.digest;
  command.weights = job.content.weights;
  for (const auto& [name, served] : names_) {
    if (name == job.order.name) continue;
    (served.source == Source::kOrder ? command.named : command.kept).push_back(served.digest);
  }
  return command;
}

void AdapterKeeper::Take(const EngineOutput& output) {
  for (const AdapterPlaced& placed : output.adapters) {
    if (placing_ == 0 || placed.number != placing_) continue;
    placing_ = 0;
    Finish(TakePlace(*running_, placed));
  }
}

AdapterKeeper::Verdict AdapterKeeper::TakePlace(Job& job, const AdapterPlaced& placed) {
  if (placed.slot < 0) {
    return {AdapterVerdict::kNoSlot,
            "all slots of --max-loras " + std::to_string(options_.max_loras) +
                " are in use, or kept for --lora-dir and --lora-modules; unload one, or raise it"};
  }
  if (!placed.evicted.empty()) GiveWay(placed.evicted, job.order.name);
  held_[job.content.digest] = {placed.slot, job.content.weights};
  world_.job_metrics.contents.Set(static_cast<double>(held_.size()));
  world_.job_metrics.loads.Add();
  return Serve(job);
}

// The content is in a slot: the name means it from now on.
AdapterKeeper::Verdict AdapterKeeper::Serve(Job& job) {
  Served& served = names_[job.order.name];
  const bool by_flag = served.source == Source::kFlag && !served.digest.empty();
  const Source source = job.desired() ? Source::kDir : by_flag ? Source::kFlag : Source::kOrder;
  served = {job.content.digest, job.content.rank, source, job.place.folder, job.fingerprint};
  if (!job.fingerprint.empty()) {
    constexpr size_t kMaxKnown = 1024;
    if (known_.size() >= kMaxKnown) known_.erase(known_.begin());
    known_[job.place.folder] = {job.fingerprint, job.content.digest, job.content.rank};
  }
  Tell();
  return {AdapterVerdict::kDone, ""};
}

void AdapterKeeper::Finish(Verdict verdict) {
  Job job = *std::exchange(running_, std::nullopt);
  verdict.second = OneLine(verdict.second);
  NoteEnd(job, verdict);
  if (!job.desired()) {
    AdapterResult result{job.order.number, verdict.first, verdict.second, "", 0};
    const auto served = names_.find(job.order.name);
    if (served != names_.end()) result.digest = served->second.digest;
    if (verdict.first == AdapterVerdict::kQueueFull) result.retry_after_ms = kAdapterJobsRetryMs;
    job.done(std::move(result));
  }
  Reconcile();
  BeginSoon();
}

void AdapterKeeper::NoteEnd(const Job& job, const Verdict& verdict) {
  const bool load = job.order.kind == AdapterOrder::Kind::kLoad;
  const std::string name = OneLine(job.order.name);
  const std::string path = OneLine(job.place.folder);
  const Micros took = world_.executor.clock().Now() - job.began;
  if (verdict.first == AdapterVerdict::kDone) {
    if (job.desired()) failed_.erase(job.order.name);
    if (!load) return world_.log.Info("adapter unloaded", {{"name", name}});
    world_.job_metrics.load_seconds.Observe(static_cast<double>(took) / kMicrosPerSecond);
    world_.log.Info("adapter loaded", {{"name", name},
                                       {"path", path},
                                       {"digest", job.content.digest},
                                       {"rank", job.content.rank},
                                       {"ms", took / kMicrosPerMilli}});
    return;
  }
  if (load && verdict.first != AdapterVerdict::kAlready) world_.job_metrics.load_failures.Add();
  bool said = false;
  if (job.desired()) {
    Failed& failed = failed_[job.order.name];
    said = failed.why == verdict.second;
    failed = {job.place.folder, job.fingerprint, verdict.second, -1};
    const bool passes =
        verdict.first == AdapterVerdict::kNoSlot || verdict.first == AdapterVerdict::kQueueFull;
    if (passes) failed.again_at = world_.executor.clock().Now() + kNoSlotPause;
    world_.job_metrics.broken.Set(static_cast<double>(problems_.size() + failed_.size()));
  }
  if (said) return;
  world_.log.Warning(load ? "an adapter could not be loaded" : "an adapter could not be unloaded",
                     {{"name", name}, {"path", path}, {"reason", OneLine(verdict.second)}});
}

// The engine has put another content in its slot: nothing used it, and its names were not kept.
void AdapterKeeper::GiveWay(const std::string& digest, const std::string& replaced) {
  world_.job_metrics.evictions.Add();
  const auto held = held_.find(digest);
  QUIRE_CHECK_MSG(held != held_.end(), "what gave way was held");
  if (auto weights = std::move(held->second.weights)) {
    (void)world_.background.Run([weights = std::move(weights)] {}, [] {});
  }
  held_.erase(held);
  std::erase_if(names_, [&](const auto& entry) {
    if (entry.second.digest != digest || entry.first == replaced) return false;
    world_.log.Info("adapter gave way to another", {{"name", entry.first}, {"digest", digest}});
    return true;
  });
}

void AdapterKeeper::Tell() {
  std::vector<std::pair<std::string, int>> slots;
  for (const auto& [name, served] : names_) slots.emplace_back(name, held_.at(served.digest).slot);
  world_.adapter_metrics.SetNames(std::move(slots));
  world_.tell(Current());
}

AdaptersChanged AdapterKeeper::Current() const {
  AdaptersChanged all;
  std::map<std::string, bool> named;
  for (const auto& [name, served] : names_) {
    named[served.digest] = true;
    all.adapters.push_back(
        {name, served.digest, options_.served_names.front(), static_cast<uint32_t>(served.rank)});
  }
  for (const auto& [digest, held] : held_) {
    if (!named.contains(digest)) all.held.push_back(digest);
  }
  return all;
}

std::vector<std::string> AdapterKeeper::HeldDigests() const {
  std::vector<std::string> digests;
  for (const auto& [digest, held] : held_) digests.push_back(digest);
  return digests;
}

}  // namespace quire
