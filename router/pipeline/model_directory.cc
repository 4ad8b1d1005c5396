#include "router/pipeline/model_directory.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/planted_bug.h"
#include "router/dispatch/refusal.h"

namespace quire {
namespace {

std::string Shown(const std::optional<float>& value) {
  return value ? std::to_string(*value) : "unset";
}

ApiError ModelGone(const std::string& served) {
  return {ApiCode::kConflict,
          "resume: the answer was begun by a model that is not among those served as " + served +
              " now; ask again, without resume",
          "resume", 0};
}

// Whether an answer of this model, or of a model and an adapter, can be resumed there.
bool Answers(const WorkerHello& hello, const std::string& answerer) {
  return hello.model_id == answerer ||
         std::any_of(hello.adapters.begin(), hello.adapters.end(), [&](const auto& adapter) {
           return AnswererOf(hello.model_id, adapter.digest) == answerer;
         });
}

// The name under which a model was given its parsers.
const std::string& ModelName(const Pool& pool) {
  return pool.adapter.empty() ? pool.name : pool.parent;
}

}  // namespace

ModelDirectory::ModelDirectory(const PipelineOptions& options, const PipelineRuntime& runtime,
                               Dispatcher& dispatcher)
    : logger_(runtime.logger),
      dispatcher_(dispatcher),
      texts_(options.limits, {runtime.dialer, runtime.executor, runtime.background},
             options.text_factory,
             [this](const std::string& model_id, const absl::Status& status) {
               TextChanged(model_id, status);
             }),
      answer_rules_(options.answer_rules) {
  dispatcher_.fleet().SetPoolRules(options.pool_rules);
}

Result<const Pool*> ModelDirectory::FindPool(const std::string& name, uint64_t key,
                                             const std::string& model_id) const {
  const Fleet& fleet = dispatcher_.fleet();
  if (fleet.pools().empty()) {
    return ApiError{ApiCode::kUnavailable, "no worker has said yet which models it serves", "",
                    1000};
  }
  const std::string& served = ServedName(name);
  const std::vector<PoolCapacity> of_name = PoolsNamed(name);
  if (of_name.empty()) return UnknownModel(name);
  if (model_id.empty() || QUIRE_BUG(model_forgotten_on_resume)) {
    const Pool* chosen = ChoosePool(fleet.pool_rules(), of_name, key);
    if (chosen != nullptr) return chosen;
    return ApiError{ApiCode::kUnavailable, "model " + served + " is not ready yet", "", 1000};
  }
  for (const PoolCapacity& each : of_name) {
    if (AnswererOf(each.pool->model_id, each.pool->adapter) == model_id) return each.pool;
  }
  if (!MayComeBack(model_id)) return ModelGone(served);
  return ApiError{ApiCode::kUnavailable, "no worker that has the model_id is there yet", "", 1000};
}

// The pools of a name, or of MODEL:ADAPTER.
std::vector<PoolCapacity> ModelDirectory::PoolsNamed(const std::string& name) const {
  const Fleet& fleet = dispatcher_.fleet();
  std::vector<PoolCapacity> of_name = fleet.PoolsOf(ServedName(name));
  const size_t colon = name.rfind(':');
  if (!of_name.empty() || colon == std::string::npos) return of_name;
  const PoolRules& rules = fleet.pool_rules();
  const auto models = fleet.PoolsOf(Unaliased(rules, name.substr(0, colon)));
  of_name = fleet.PoolsOf(Unaliased(rules, name.substr(colon + 1)));
  std::erase_if(of_name, [&](const PoolCapacity& adapter) {
    return adapter.pool->adapter.empty() ||
           std::none_of(models.begin(), models.end(), [&](const PoolCapacity& model) {
             return model.pool->adapter.empty() && model.pool->model_id == adapter.pool->model_id;
           });
  });
  return of_name;
}

// Made-up names are cheap to send: no entry is made for the answer.
ApiError ModelDirectory::UnknownModel(const std::string& name) const {
  const Fleet& fleet = dispatcher_.fleet();
  std::vector<std::string> names;
  absl::flat_hash_set<std::string_view> listed;
  for (const Pool& pool : fleet.pools()) {
    if (!listed.insert(pool.name).second) continue;
    names.push_back(pool.name);
    if (!pool.parent.empty()) names.push_back(pool.parent + ":" + pool.name);
  }
  for (const auto& [alias, served] : fleet.pool_rules().aliases) {
    if (listed.contains(served) && listed.insert(alias).second) names.push_back(alias);
  }
  return NotServed(name, names);
}

bool ModelDirectory::Serves(const std::string& name) const { return !PoolsNamed(name).empty(); }

ApiError ModelDirectory::NobodyFor(const GenerateRequest& ask, const ServedModel& model) const {
  const std::string& served = ServedName(ask.model);
  const std::vector<PoolCapacity> of_name = PoolsNamed(ask.model);
  const bool ready = std::any_of(of_name.begin(), of_name.end(),
                                 [](const PoolCapacity& each) { return each.ready_rows > 0; });
  if (ask.resume && ready && !MayComeBack(ask.resume->model_id)) return ModelGone(served);
  return NoWorkerError(model.model_id.empty() ? ask.model : model.facts.name, false);
}

// The model that a client's name refers to; no name may refer to the only one.
const std::string& ModelDirectory::ServedName(const std::string& name) const {
  const Fleet& fleet = dispatcher_.fleet();
  const std::string* only = name.empty() ? OnlyName(fleet.pools()) : nullptr;
  return only != nullptr ? *only : Unaliased(fleet.pool_rules(), name);
}

// A worker that has not greeted yet may have it.
bool ModelDirectory::MayComeBack(const std::string& model_id) const {
  const std::vector<WorkerRecord>& workers = dispatcher_.fleet().workers();
  return std::any_of(workers.begin(), workers.end(), [&](const WorkerRecord& worker) {
    if (worker.phase == WorkerPhase::kGone || worker.phase == WorkerPhase::kRefused) return false;
    const bool silent = worker.hello.model_id.empty() && worker.refused_id.empty();
    return silent || Answers(worker.hello, model_id);
  });
}

Result<ServedModel> ModelDirectory::Find(const std::string& name, uint64_t key,
                                         const std::string& model_id) {
  const Result<const Pool*> found = FindPool(name, key, model_id);
  if (!found.ok()) return found.error();
  const Pool& pool = *found.value();
  const WorkerRecord* worker = dispatcher_.fleet().Representative(pool.model_id);
  ServedModel model;
  model.text = texts_.Find(pool.model_id);
  if (model.text == nullptr || worker == nullptr) {
    return ApiError{ApiCode::kUnavailable, "model " + pool.name + " is not ready yet", "", 1000};
  }
  // Errors use the name that the client sent.
  model.facts = {name.empty() ? pool.name : name, worker->hello.limits.max_model_len,
                 worker->hello.vocab_size, worker->hello.limits,
                 dispatcher_.fleet().FeaturesOf(pool.model_id)};
  model.model_id = pool.model_id;
  model.adapter = pool.adapter;
  model.format = FormatOf(pool, *model.text);
  return model;
}

std::shared_ptr<const AnswerFormat> ModelDirectory::FormatOf(const Pool& pool,
                                                             const ModelText& text) {
  const std::string& name = ModelName(pool);
  std::shared_ptr<const AnswerFormat>& format = formats_[{name, pool.model_id}];
  if (format == nullptr) {
    format = std::make_shared<const AnswerFormat>(
        MakeAnswerFormat(text, answer_rules_.Of(name, text.Spoken())));
  }
  return format;
}

// Requires: some pool.
ModelEntry ModelDirectory::EntryOf(std::string_view name,
                                   const std::vector<PoolCapacity>& of_name) const {
  const Fleet& fleet = dispatcher_.fleet();
  const std::vector<uint64_t> shares = PoolShares(fleet.pool_rules(), of_name);
  ModelEntry entry;
  entry.name = name;
  const Pool* main = of_name.back().pool;
  entry.created = of_name.front().pool->created;
  uint64_t most = 0;
  for (size_t i = 0; i < of_name.size(); ++i) {
    const Pool& pool = *of_name[i].pool;
    entry.workers_ready += of_name[i].ready_workers;
    const bool listed = std::find(entry.model_ids.begin(), entry.model_ids.end(), pool.model_id) !=
                        entry.model_ids.end();
    if (of_name[i].attached && !listed) entry.model_ids.push_back(pool.model_id);
    if (shares[i] <= most) continue;
    most = shares[i];
    main = &pool;
  }
  entry.model_id = main->model_id;
  entry.adapter = main->adapter;
  entry.parent = main->parent;
  if (entry.model_ids.empty()) entry.model_ids = {entry.model_id};
  const WorkerRecord* worker = fleet.Representative(entry.model_id);
  entry.max_model_len = worker == nullptr ? 0 : worker->hello.limits.max_model_len;
  if (const std::shared_ptr<const ModelText> text = texts_.Find(entry.model_id)) {
    const std::string& served = ModelName(*main);
    const dialect::Detected spoken = answer_rules_.Of(served, text->Spoken());
    if (spoken.dialect != nullptr) entry.tool_call_parser = spoken.dialect->name;
    entry.chat_problem = text->ChatProblem();
    if (spoken.thoughts != nullptr) entry.reasoning_parser = spoken.thoughts->name;
  }
  return entry;
}

std::vector<ModelEntry> ModelDirectory::Entries() const {
  const Fleet& fleet = dispatcher_.fleet();
  const auto by_name = fleet.PoolsByName();
  absl::flat_hash_map<std::string_view, size_t> places;
  std::vector<ModelEntry> entries;
  for (size_t i = 0; i < by_name.size(); ++i) {
    places.emplace(by_name[i].first, i);
    entries.push_back(EntryOf(by_name[i].first, by_name[i].second));
  }
  for (const auto& [alias, served] : fleet.pool_rules().aliases) {
    const auto place = places.find(served);
    if (place == places.end() || places.contains(alias)) continue;
    entries.push_back(EntryOf(alias, by_name[place->second].second));
  }
  return entries;
}

bool ModelDirectory::AnyReady() const {
  const std::vector<WorkerRecord>& workers = dispatcher_.fleet().workers();
  return std::any_of(workers.begin(), workers.end(), [](const WorkerRecord& worker) {
    return worker.phase == WorkerPhase::kReady;
  });
}

void ModelDirectory::Changed(WorkerIndex index) {
  ++changes_;
  const WorkerRecord& worker = dispatcher_.fleet().worker(index);
  if (worker.phase == WorkerPhase::kGone) {
    logged_.erase(index);
    return;
  }
  if (worker.attached && worker.refusal.empty()) texts_.Want(worker);
  const std::string& why = worker.refusal.empty() ? worker.last_error : worker.refusal;
  std::pair<WorkerPhase, std::string>& last = logged_[index];
  if (last == std::pair(worker.phase, why)) return;
  last = {worker.phase, why};
  const bool well = worker.phase == WorkerPhase::kReady || worker.phase == WorkerPhase::kPreparing;
  logger_.Log(well ? LogLevel::kInfo : LogLevel::kWarning, "worker changed",
              {{"worker", worker.target},
               {"phase", WorkerPhaseName(worker.phase)},
               {"worker_id", worker.hello.worker_id},
               {"reason", why}});
}

void ModelDirectory::Refresh() {
  for (const WorkerRecord& worker : dispatcher_.fleet().workers()) {
    if (worker.attached && worker.refusal.empty()) texts_.Want(worker);
  }
  texts_.EndRound(dispatcher_.fleet().pools());
  std::erase_if(formats_,
                [&](const auto& known) { return texts_.Find(known.first.second) == nullptr; });
}

void ModelDirectory::TextChanged(const std::string& model_id, const absl::Status& status) {
  if (status.ok()) {
    dispatcher_.fleet().TextReady(model_id);
    LogSettings(model_id);
  } else if (absl::IsUnavailable(status)) {
    logger_.Warning("text bundle could not be fetched", {{"reason", StatusMessage(status)}});
    return;
  } else {
    logger_.Error("text bundle is unusable", {{"reason", StatusMessage(status)}});
    dispatcher_.fleet().TextRefused(model_id,
                                    "its text bundle is unusable: " + StatusMessage(status));
  }
  for (const WorkerRecord& worker : dispatcher_.fleet().workers()) Changed(worker.index);
  dispatcher_.TryWaiting();
}

void ModelDirectory::LogSettings(const std::string& model_id) const {
  const std::shared_ptr<const ModelText> text = texts_.Find(model_id);
  const GenerationSettings& settings = text->generation();
  for (const std::string& setting : settings.unusable) {
    logger_.Warning("a sampling default in a model's generation_config.json is left out",
                    {{"model_id", model_id}, {"reason", setting}});
  }
  const dialect::Detected spoken = text->Spoken();
  logger_.Info("a model's chat template",
               {{"model_id", model_id},
                {"tool_call_parser", spoken.dialect ? spoken.dialect->name : "none"},
                {"reasoning_parser", spoken.thoughts ? spoken.thoughts->name : "none"}});
  logger_.Info("sampling defaults of a model",
               {{"model_id", model_id},
                {"temperature", Shown(settings.temperature)},
                {"top_p", Shown(settings.top_p)},
                {"top_k", settings.top_k ? std::to_string(*settings.top_k) : "unset"},
                {"min_p", Shown(settings.min_p)},
                {"repetition_penalty", Shown(settings.repetition_penalty)}});
}

}  // namespace quire
