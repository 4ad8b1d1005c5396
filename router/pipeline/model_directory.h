// Which models this router serves now: names, text sides, limits, health.
//
// Owner: the pipeline, on the router's executor. Watches the dispatcher's fleet and reports to it
// whether each model's text is usable.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/log/log.h"
#include "router/core/result.h"
#include "router/dispatch/dispatcher.h"
#include "router/pipeline/make_pipeline.h"
#include "router/pipeline/model_texts.h"
#include "router/pipeline/request.h"

namespace quire {

class ModelDirectory {
 public:
  // The dispatcher and the runtime outlive the directory.
  ModelDirectory(const PipelineOptions& options, const PipelineRuntime& runtime,
                 Dispatcher& dispatcher);

  // The model for a request with this key; `model_id` is the model of a resumed answer, or empty.
  // A name is a model's, an adapter's, an alias of either, or MODEL:ADAPTER.
  // NOT_FOUND names what is served, or the nearest of many names; CONFLICT: this router has never
  // seen that model_id under this name, and it knows the models of all workers; UNAVAILABLE while
  // no worker is known yet.
  Result<ServedModel> Find(const std::string& name, uint64_t key = 0,
                           const std::string& model_id = "");
  // The text side of what Find returns, with its errors.
  Result<std::shared_ptr<const ModelText>> TextOf(const std::string& name) {
    Result<ServedModel> model = Find(name);
    if (!model.ok()) return model.error();
    return std::move(model.value().text);
  }
  // The error for a request that has found no worker for as long as it may wait; `model` is empty
  // where none was found for it. CONFLICT for a resumed answer, when no worker can have its model
  // any more and another one is ready under its name: further waiting would not help.
  ApiError NobodyFor(const GenerateRequest& ask, const ServedModel& model) const;
  std::vector<ModelEntry> Entries() const;  // one per served name and alias
  // Whether Find knows the name; far cheaper than Entries.
  bool Serves(const std::string& name) const;
  bool AnyReady() const;
  // Grows when more, or fewer, models may be found than before.
  uint64_t changes() const { return changes_; }

  // A worker attached, left, or changed its phase.
  void Changed(WorkerIndex worker);
  // Fetches again the texts that could not be fetched. Call every second.
  void Refresh();

 private:
  Result<const Pool*> FindPool(const std::string& name, uint64_t key,
                               const std::string& model_id) const;
  const std::string& ServedName(const std::string& name) const;
  std::vector<PoolCapacity> PoolsNamed(const std::string& name) const;
  ApiError UnknownModel(const std::string& name) const;
  bool MayComeBack(const std::string& model_id) const;
  ModelEntry EntryOf(std::string_view name, const std::vector<PoolCapacity>& of_name) const;
  void TextChanged(const std::string& model_id, const absl::Status& status);
  std::shared_ptr<const AnswerFormat> FormatOf(const Pool& pool, const ModelText& text);
  void LogSettings(const std::string& model_id) const;

  Logger& logger_;
  uint64_t changes_ = 0;
  Dispatcher& dispatcher_;
  // As last logged: a worker that cannot be reached is logged once, not at every attempt.
  std::map<WorkerIndex, std::pair<WorkerPhase, std::string>> logged_;
  ModelTexts texts_;
  const AnswerRules answer_rules_;
  // By served name and model_id, since their first request.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const AnswerFormat>> formats_;
};

}  // namespace quire
