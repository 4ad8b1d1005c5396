#include "router/pipeline/model_directory.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

std::string Shown(const std::optional<float>& value) {
  return value ? std::to_string(*value) : "unset";
}

}  // namespace

ModelDirectory::ModelDirectory(const PipelineOptions& options, const PipelineRuntime& runtime,
                               Dispatcher& dispatcher)
    : logger_(runtime.logger),
      dispatcher_(dispatcher),
      texts_(options.limits, runtime.dialer, runtime.background, options.text_factory,
             [this](const std::string& model_id, const absl::Status& status) {
               TextChanged(model_id, status);
             }) {}

Result<ServedModel> ModelDirectory::Find(const std::string& name) const {
  const Fleet& fleet = dispatcher_.fleet();
  if (fleet.pools().empty()) {
    return ApiError{ApiCode::kUnavailable, "no worker has said yet which models it serves", "",
                    1000};
  }
  const Pool* pool = fleet.FindPool(name);
  if (pool == nullptr) {
    std::string served;
    for (const ModelEntry& entry : Entries()) {
      served += (served.empty() ? "" : ", ") + entry.name;
    }
    if (name.empty()) {
      return InvalidField("model", "must name one of the models that are served: " + served);
    }
    return ApiError{ApiCode::kNotFound,
                    "model: '" + name.substr(0, kMaxHelloStringBytes) +
                        "' is not served; served are: " + served,
                    "model", 0};
  }
  const WorkerRecord* worker = fleet.Representative(pool->model_id);
  ServedModel model;
  model.text = texts_.Find(pool->model_id);
  if (model.text == nullptr || worker == nullptr) {
    return ApiError{ApiCode::kUnavailable, "model " + pool->name + " is not ready yet", "", 1000};
  }
  model.facts = {pool->name, worker->hello.limits.max_model_len, worker->hello.vocab_size,
                 worker->hello.limits, worker->hello.features};
  model.model_id = pool->model_id;
  return model;
}

std::vector<ModelEntry> ModelDirectory::Entries() const {
  const Fleet& fleet = dispatcher_.fleet();
  std::vector<ModelEntry> entries;
  for (const Pool& pool : fleet.pools()) {
    if (fleet.FindPool(pool.name)->index != pool.index) continue;
    const WorkerRecord* worker = fleet.Representative(pool.model_id);
    const uint32_t length = worker == nullptr ? 0 : worker->hello.limits.max_model_len;
    entries.push_back(
        {pool.name, pool.model_id, length, fleet.ReadyCount(pool.model_id), pool.created});
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
  logger_.Info("sampling defaults of a model",
               {{"model_id", model_id},
                {"temperature", Shown(settings.temperature)},
                {"top_p", Shown(settings.top_p)},
                {"top_k", settings.top_k ? std::to_string(*settings.top_k) : "unset"},
                {"min_p", Shown(settings.min_p)},
                {"repetition_penalty", Shown(settings.repetition_penalty)}});
}

}  // namespace quire
