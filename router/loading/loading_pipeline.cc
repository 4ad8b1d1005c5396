#include "router/loading/loading_pipeline.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "common/check.h"
#include "router/core/result.h"
#include "router/pipeline/held_bytes.h"

namespace quire {

using serve::ModelState;
using serve::OrderKind;

namespace {

constexpr Micros kTick = kMicrosPerSecond;
constexpr Micros kAttachInterval = 10 * kMicrosPerMilli;
// A worker that is ready and that this router still does not use: the pipeline behind knows why.
constexpr Micros kAttachPatience = 5 * kMicrosPerSecond;
constexpr double kReadBytesPerSecond = 500e6;  // for estimates alone

std::string SizeOf(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

}  // namespace

// A request, and the sink of the pipeline behind.
struct LoadingPipeline::Live final : ResponseSink {
  Live(LoadingPipeline& pipeline, RequestId request_id, ResponseSink* sink)
      : owner(pipeline), id(request_id), outer(sink) {}

  void OnWaiting(const std::string& what) override { outer->OnWaiting(what); }
  void OnStarted(const Started& started) override { outer->OnStarted(started); }
  void OnDelta(const Delta& delta) override { outer->OnDelta(delta); }
  void OnChoiceEnd(const ChoiceEnd& end) override { outer->OnChoiceEnd(end); }
  void OnFinished(const Usage& usage) override {
    const std::unique_ptr<Live> self = owner.Take(id);
    outer->OnFinished(usage);
  }
  void OnError(const ApiError& error) override {
    const std::unique_ptr<Live> self = owner.Take(id);
    outer->OnError(error);
  }

  LoadingPipeline& owner;
  const RequestId id;
  ResponseSink* const outer;
  std::string model;  // of the shelf; empty: it counts for none
  RequestId inner = 0;
  // While it waits.
  bool waiting = false;
  GenerateRequest request;
  std::unique_ptr<MemoryHold> hold;
  Micros arrived = 0;
  Micros deadline = 0;
};

LoadingMetrics::LoadingMetrics(Metrics& metrics)
    : loads(metrics.AddCounter(
          {"quire_router_model_loads_total", "Models of this machine that were asked to load."})),
      failures(metrics.AddCounter(
          {"quire_router_model_load_failures_total", "Loads of models that failed."})),
      refused(metrics.AddCounter(
          {"quire_router_load_queue_refusals_total",
           "Requests refused since --max-load-queue others waited for models."})),
      held(metrics.AddGauge(
          {"quire_router_load_queue_requests", "Requests that wait for their models to load."})),
      loaded(metrics.AddGauge(
          {"quire_router_models_loaded", "Models of this machine that are loaded."})),
      jobs(metrics.AddGauge({"quire_router_model_jobs",
                             "Pulls and removals that clients asked for and that are under way."})),
      jobs_refused(metrics.AddCounter(
          {"quire_router_model_jobs_refused_total",
           "Pulls and removals refused since the most that may run were under way."})),
      pulls_too_large(metrics.AddCounter(
          {"quire_router_pulls_too_large_total",
           "Pulls of models that have more than --max-pull-bytes, or than the disk has room "
           "for."})) {}

LoadingPipeline::LoadingPipeline(Pipeline& inner, LoadingOptions options, LoadingRuntime runtime)
    : inner_(inner),
      options_(std::move(options)),
      runtime_(std::move(runtime)),
      shelf_(options_.shelf),
      metrics_(runtime_.metrics) {}

LoadingPipeline::~LoadingPipeline() {
  *alive_ = false;
  while (!live_.empty()) Cancel(live_.begin()->first);
}

// ------------------------------------------------------------------------------ requests

RequestId LoadingPipeline::Start(GenerateRequest request, ResponseSink* sink) {
  const RequestId id = ++last_id_;
  Live& live = *live_.emplace(id, std::make_unique<Live>(*this, id, sink)).first->second;
  live.arrived = Now();
  live.model = RequestedName(request.model);
  live.request = std::move(request);
  if (live.model.empty()) {
    if (MayBeBehind(live.request.model)) {
      Launch(live);
    } else {
      FailLater(id, NotHere(live.request.model));
    }
    return id;
  }
  const bool draining = draining_;
  if (draining || (shelf_.MayBegin(live.model, Now()) && Attached(live.model))) {
    shelf_.Use(live.model);
    Launch(live);
    return id;
  }
  if (const std::optional<ApiError> refusal = Hold(live)) FailLater(id, *refusal);
  return id;
}

void LoadingPipeline::Launch(Live& live) {
  live.inner = inner_.Start(std::exchange(live.request, {}), &live);
}

std::optional<ApiError> LoadingPipeline::Hold(Live& live) {
  if (held_ >= options_.max_held) {
    metrics_.refused.Add();
    live.model.clear();
    return ApiError{ApiCode::kUnavailable,
                    std::to_string(options_.max_held) +
                        " requests wait for models to load already (--max-load-queue)",
                    "", 1000};
  }
  live.hold = std::make_unique<MemoryHold>(inner_.MemoryOf(live.request.tenant.get()));
  if (!live.hold->TryResize(HeldBytes(live.request) + PromptBytes(live.request.prompt))) {
    live.model.clear();
    return TooMuchHeld();
  }
  const Micros own = static_cast<Micros>(live.request.timeout_ms) * kMicrosPerMilli;
  live.deadline =
      live.arrived + (own == 0 ? options_.load_timeout : std::min(own, options_.load_timeout));
  live.waiting = true;
  ++held_;
  shelf_.Wait(live.model, Now());
  if (!tick_timer_.running()) tick_timer_.SetIn(kTick, [this] { Tick(); });
  LookSoon();
  return std::nullopt;
}

// The request is over, or its client has gone: nothing of it stays.
std::unique_ptr<LoadingPipeline::Live> LoadingPipeline::Take(RequestId id) {
  const auto found = live_.find(id);
  QUIRE_CHECK(found != live_.end());
  std::unique_ptr<Live> live = std::move(found->second);
  live_.erase(found);
  if (live->model.empty()) return live;
  if (std::exchange(live->waiting, false)) {
    --held_;
    shelf_.StopWaiting(live->model);
  } else {
    shelf_.Done(live->model, Now());
  }
  LookSoon();
  return live;
}

void LoadingPipeline::Cancel(RequestId id) {
  if (!live_.contains(id)) return;
  const std::unique_ptr<Live> live = Take(id);
  if (live->inner != 0) inner_.Cancel(live->inner);
}

void LoadingPipeline::Taken(RequestId id, uint32_t choice, uint64_t index) {
  const auto found = live_.find(id);
  if (found != live_.end() && found->second->inner != 0) {
    inner_.Taken(found->second->inner, choice, index);
  }
}

trace::RequestTrace LoadingPipeline::TraceOf(RequestId id) const {
  const auto found = live_.find(id);
  return found == live_.end() ? trace::RequestTrace() : inner_.TraceOf(found->second->inner);
}

void LoadingPipeline::Fail(RequestId id, const ApiError& error) {
  const std::unique_ptr<Live> live = Take(id);
  live->outer->OnError(error);
}

void LoadingPipeline::FailLater(RequestId id, ApiError error) {
  runtime_.executor.Post([this, id, error = std::move(error), alive = alive_] {
    if (*alive && live_.contains(id)) Fail(id, error);
  });
}

void LoadingPipeline::StartDraining() {
  draining_ = true;
  inner_.StartDraining();
  for (const RequestId id : Waiting()) {
    FailLater(id, {ApiCode::kUnavailable, "this router is shutting down", "", 1000});
  }
}

void LoadingPipeline::EndAll(const ApiError& error) {
  for (const RequestId id : Waiting()) {
    if (live_.contains(id)) Fail(id, error);
  }
  inner_.EndAll(error);
}

std::vector<RequestId> LoadingPipeline::Waiting() const {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : live_) {
    if (live->waiting) ids.push_back(id);
  }
  return ids;
}

// -------------------------------------------------------------------------------- models

std::string LoadingPipeline::RequestedName(const std::string& name) const {
  std::string own = ShelfName(name);
  return own.empty() && !name.empty() ? OtherName(name, inner_.Models()) : own;
}

std::string LoadingPipeline::ShelfName(const std::string& name) const {
  const auto& models = shelf_.models();
  if (name.empty()) return models.size() == 1 ? models.begin()->first : "";
  if (shelf_.Find(name) != nullptr) return name;
  const auto alias = options_.aliases.find(name);
  const bool known = alias != options_.aliases.end() && shelf_.Find(alias->second) != nullptr;
  return known ? alias->second : "";
}

// The model of an adapter (ADAPTER or MODEL:ADAPTER), or of a name that is not the shelf's: workers
// of the model that `quire serve` keeps may have names of their own for it.
std::string LoadingPipeline::OtherName(const std::string& name,
                                       const std::vector<ModelEntry>& known) const {
  if (removed_.contains(name)) return "";
  for (const ModelEntry& entry : known) {
    const std::string_view end = entry.name;
    const bool with_model = !entry.parent.empty() && name.size() > end.size() &&
                            name.ends_with(end) && name[name.size() - end.size() - 1] == ':';
    if (entry.name == name || with_model) return ModelBehind(entry);
  }
  return "";
}

// The model of an entry of the pipeline behind.
std::string LoadingPipeline::ModelBehind(const ModelEntry& entry) const {
  if (removed_.contains(entry.name)) return "";
  if (shelf_.Find(entry.parent) != nullptr) return entry.parent;
  const auto& models = shelf_.models();
  const auto kept = std::find_if(models.begin(), models.end(),
                                 [](const auto& one) { return one.second.news.kept; });
  return kept == models.end() ? "" : kept->first;
}

std::string LoadingPipeline::MachineNameOf(const ModelEntry& entry) const {
  std::string own = ShelfName(entry.name);
  return own.empty() ? ModelBehind(entry) : own;
}

bool LoadingPipeline::MayBeBehind(const std::string& name) const {
  return !removed_.contains(name) &&
         std::all_of(shelf_.models().begin(), shelf_.models().end(),
                     [](const auto& one) { return one.second.news.kept; });
}

bool LoadingPipeline::LoadsOnDemand() const {
  return !shelf_.models().empty() && !shelf_.AnyReady();
}

bool LoadingPipeline::Attached(const std::string& name) {
  const auto since = ready_since_.find(name);
  if (since == ready_since_.end()) return false;
  if (since->second == 0) return true;
  bool attached = Now() >= since->second + kAttachPatience;
  for (const ModelEntry& entry : inner_.Models()) {
    attached = attached || (entry.workers_ready > 0 && MachineNameOf(entry) == name);
  }
  if (attached) since->second = 0;  // from now on the pipeline behind copes with its workers
  return attached;
}

uint32_t LoadingPipeline::RetryAfterMs(const serve::ModelNews& news) const {
  return 1000 + static_cast<uint32_t>(std::min(
                    60e3, 1000.0 * static_cast<double>(news.file_bytes) / kReadBytesPerSecond));
}

ApiError LoadingPipeline::NotLoaded(const serve::ModelNews& news) const {
  return {ApiCode::kUnavailable, "model " + news.name + " could not be loaded: " + news.error, "",
          RetryAfterMs(news)};
}

ApiError LoadingPipeline::NotHere(const std::string& name) const {
  std::vector<std::string> served;
  for (const ModelEntry& entry : Models()) served.push_back(entry.name);
  return NotServed(name, served);
}

std::vector<ModelEntry> LoadingPipeline::Models() const {
  std::vector<ModelEntry> entries = inner_.Models();
  std::set<std::string> listed;
  for (ModelEntry& entry : entries) {
    listed.insert(entry.name);
    const std::string name = MachineNameOf(entry);
    if (name.empty()) continue;
    // Its workers may serve it under names of their own.
    if (entry.parent.empty()) listed.insert(name);
    entry.state = serve::ModelStateName(shelf_.Find(name)->news.state);
  }
  std::erase_if(entries, [](const ModelEntry& entry) {
    return entry.state.empty() && entry.workers_ready == 0;  // removed from the machine
  });
  for (const auto& [name, model] : shelf_.models()) {
    if (model.news.gone || listed.contains(name)) continue;
    ModelEntry entry;
    entry.name = name;
    entry.created = model.news.modified;
    entry.state = serve::ModelStateName(model.news.state);
    entries.push_back(std::move(entry));
  }
  return entries;
}

// ---------------------------------------------------------------------------- what happens

void LoadingPipeline::Heard(const serve::News& news) {
  std::visit([this](const auto& what) { On(what); }, news);
}

void LoadingPipeline::On(const serve::ModelNews& news) {
  if (!shelf_.Heard(news, Now())) {
    runtime_.logger.Warning("a model is left out: there are too many", {{"model", news.name}});
    return;
  }
  removed_.erase(news.name);
  if (news.gone) {
    if (removed_.size() >= serve::kMaxModels) removed_.erase(removed_.begin());
    removed_.insert(news.name);
  }
  if (news.state != ModelState::kReady) {
    ready_since_.erase(news.name);
  } else {
    ready_since_.try_emplace(news.name, Now());
  }
  if (!news.error.empty()) {
    metrics_.failures.Add();
    runtime_.logger.Error("a model could not be loaded",
                          {{"model", news.name}, {"reason", news.error}});
  }
  NameWorkers();
  LookSoon();
}

// Workers of a model that leaves are forgotten before they end.
void LoadingPipeline::NameWorkers() {
  std::vector<serve::WorkerPlace> places;
  for (const auto& [name, model] : shelf_.models()) {
    if (model.news.state != ModelState::kReady) continue;
    places.insert(places.end(), model.news.workers.begin(), model.news.workers.end());
  }
  if (places == named_) return;
  named_ = places;
  std::vector<std::string> targets;
  for (const serve::WorkerPlace& place : places) targets.push_back(place.wire);
  std::sort(targets.begin(), targets.end());
  inner_.WorkersNamed("serve", std::move(targets));
  runtime_.workers_changed(std::move(places));
}

void LoadingPipeline::LookSoon() {
  if (std::exchange(looking_, true)) return;
  runtime_.executor.Post([this, alive = alive_] {
    if (!*alive) return;
    looking_ = false;
    Look();
  });
}

void LoadingPipeline::Look() {
  LookAtHeld();
  if (!draining_) {
    while (const std::optional<serve::Order> order = shelf_.Next(Now())) {
      if (order->kind == OrderKind::kLoad) metrics_.loads.Add();
      runtime_.order(*order);
    }
  }
  NameWorkers();
  LookAtWatchers();
  metrics_.held.Set(static_cast<double>(held_));
  metrics_.loaded.Set(static_cast<double>(shelf_.loaded()));
  std::optional<Micros> due = shelf_.NextExpiry(Now());
  for (const auto& [id, live] : live_) {
    if (live->waiting) due = std::min(due.value_or(live->deadline), live->deadline);
  }
  for (const Watcher& watcher : watchers_) {
    due = std::min(due.value_or(watcher.deadline), watcher.deadline);
  }
  const bool attaching = std::any_of(ready_since_.begin(), ready_since_.end(),
                                     [](const auto& one) { return one.second != 0; });
  const Micros soon = Now() + kAttachInterval;
  if (attaching && (held_ > 0 || !watchers_.empty())) due = std::min(due.value_or(soon), soon);
  look_timer_.Stop();
  if (due) look_timer_.Set(std::max(*due, Now()), [this] { Look(); });
}

void LoadingPipeline::LookAtHeld() {
  for (const RequestId id : Waiting()) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;  // another's sink has cancelled it
    Live& live = *found->second;
    const ModelShelf::Model* model = shelf_.Find(live.model);
    const bool failed = model->news.state == ModelState::kAbsent && !model->wanted;
    if (model->news.gone) {
      Fail(id, NotHere(live.request.model));
    } else if (failed && !model->news.error.empty()) {
      Fail(id, NotLoaded(model->news));
    } else if (Now() >= live.deadline) {
      Fail(id, {ApiCode::kUnavailable,
                "model " + live.model +
                    " was not loaded in time (--load-timeout, or the request's own)",
                "", RetryAfterMs(model->news)});
    } else if (shelf_.MayBegin(live.model, Now()) && Attached(live.model)) {
      shelf_.Use(live.model);
      shelf_.StopWaiting(live.model);
      live.waiting = false;
      --held_;
      live.hold.reset();
      Launch(live);
    }
  }
}

void LoadingPipeline::Tick() {
  for (const RequestId id : Waiting()) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;
    const Live& live = *found->second;
    const serve::ModelNews& news = shelf_.Find(live.model)->news;
    const bool loading = news.state == ModelState::kLoading || news.state == ModelState::kReady;
    live.outer->OnWaiting((loading ? "loading " : "waiting for room to load ") + live.model + " (" +
                          SizeOf(news.file_bytes) + "), " +
                          std::to_string((Now() - live.arrived) / kMicrosPerSecond) + " s");
  }
  if (held_ > 0) tick_timer_.SetIn(kTick, [this] { Tick(); });
}

void LoadingPipeline::CheckInvariants() const {
  inner_.CheckInvariants();
  shelf_.CheckInvariants();
  size_t held = 0;
  std::map<std::string, uint32_t> of_model;
  for (const auto& [id, live] : live_) {
    held += live->waiting ? 1 : 0;
    if (!live->model.empty()) ++of_model[live->model];
  }
  QUIRE_CHECK(held == held_ && held_ <= options_.max_held);
  for (const auto& [name, model] : shelf_.models()) {
    QUIRE_CHECK(of_model[name] == model.waiting + model.using_it);
  }
}

}  // namespace quire
