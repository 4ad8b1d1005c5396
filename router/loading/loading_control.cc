// What LoadingPipeline does for operators and for clients that pull.
#include <algorithm>
#include <utility>

#include "router/loading/loading_pipeline.h"

namespace quire {

using serve::ModelState;
using serve::OrderKind;

class LoadingPipeline::Task final : public ControlTask {
 public:
  explicit Task(std::function<void()> leave) : leave_(std::move(leave)) {}
  ~Task() override { leave_(); }

 private:
  const std::function<void()> leave_;
};

std::string LoadingPipeline::MachineName(const std::string& name) const {
  std::string found = RequestedName(name);
  constexpr std::string_view kLatest = ":latest";
  if (!found.empty() || !name.ends_with(kLatest)) return found;
  return RequestedName(name.substr(0, name.size() - kLatest.size()));
}

std::vector<MachineModel> LoadingPipeline::MachineModels() const {
  std::vector<MachineModel> models;
  const int64_t unix_now = runtime_.executor.clock().UnixSeconds();
  for (const auto& [name, model] : shelf_.models()) {
    if (model.news.gone) continue;
    MachineModel one{name,
                     model.news.state,
                     model.news.file_bytes,
                     model.news.memory_bytes,
                     model.news.modified,
                     model.waiting + model.using_it};
    if (const std::optional<Micros> until = shelf_.Until(model)) {
      one.until = unix_now + std::max<Micros>(0, *until - Now()) / kMicrosPerSecond;
    }
    one.error = model.news.error;
    one.makeup = model.news.makeup;
    models.push_back(std::move(one));
  }
  return models;
}

void LoadingPipeline::KeepAlive(const std::string& name, Micros time) {
  if (shelf_.Find(name) == nullptr) return;
  shelf_.KeepAlive(name, time, Now());
  LookSoon();
}

void LoadingPipeline::LookAtWatchers() {
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    const ModelShelf::Model* model = shelf_.Find(it->model);
    const bool absent = model == nullptr || model->news.state == ModelState::kAbsent;
    std::optional<ApiError> error;
    bool over = true;
    if (it->loaded && model == nullptr) {
      error = NotHere(it->model);
    } else if (it->loaded && model != nullptr && absent && !model->wanted) {
      error = NotLoaded(model->news);
    } else if (Now() >= it->deadline) {
      error =
          ApiError{ApiCode::kUnavailable, "model " + it->model + ": this takes too long", "", 5000};
    } else {
      over = it->loaded ? !absent && model->news.state == ModelState::kReady && Attached(it->model)
                        : absent;
    }
    if (!over) {
      ++it;
      continue;
    }
    const ControlDone done = std::move(it->done);
    it = watchers_.erase(it);
    runtime_.executor.Post([done, error] { done(error); });
  }
}

void LoadingPipeline::On(const serve::JobNews& news) {
  const auto found = jobs_.find(news.job);
  if (found == jobs_.end()) return;  // its client has gone
  const JobProgress progress = found->second;
  if (news.done) {
    jobs_.erase(found);
    metrics_.jobs.Set(static_cast<double>(jobs_.size()));
    constexpr int kTooLarge = static_cast<int>(absl::StatusCode::kResourceExhausted);
    if (news.code == kTooLarge) metrics_.pulls_too_large.Add();
  }
  progress(news);
}

std::unique_ptr<ControlTask> LoadingPipeline::Load(const std::string& name, ControlDone done) {
  if (shelf_.Find(name) != nullptr) shelf_.Want(name, Now());
  return Watch(name, true, std::move(done));
}

std::unique_ptr<ControlTask> LoadingPipeline::Unload(const std::string& name, ControlDone done) {
  if (shelf_.Find(name) != nullptr && !shelf_.Unload(name)) {
    runtime_.executor.Post([name, done = std::move(done)] {
      done(ApiError{ApiCode::kConflict,
                    "model " + name + " is in use; it can be unloaded once its requests have ended",
                    "", 0});
    });
    return nullptr;
  }
  return Watch(name, false, std::move(done));
}

std::unique_ptr<ControlTask> LoadingPipeline::Watch(const std::string& name, bool loaded,
                                                    ControlDone done) {
  const uint64_t id = ++last_job_;
  watchers_.push_back({id, name, loaded, Now() + options_.load_timeout, std::move(done)});
  LookSoon();
  return std::make_unique<Task>([this, id] {
    std::erase_if(watchers_, [id](const Watcher& watcher) { return watcher.id == id; });
  });
}

// The first failure ends the wait for all.
std::unique_ptr<ControlTask> LoadingPipeline::WatchAll(const std::vector<std::string>& names,
                                                       bool loaded, const ControlDone& done) {
  if (names.empty()) {
    runtime_.executor.Post([done] { done(std::nullopt); });
    return nullptr;
  }
  const auto left = std::make_shared<size_t>(names.size());
  const auto tasks = std::make_shared<std::vector<std::unique_ptr<ControlTask>>>();
  for (const std::string& name : names) {
    tasks->push_back(Watch(name, loaded, [left, done](const std::optional<ApiError>& error) {
      if (*left == 0) return;
      *left = error ? 0 : *left - 1;
      if (*left == 0) done(error);
    }));
  }
  return std::make_unique<Task>([tasks, left] {
    *left = 0;
    tasks->clear();
  });
}

std::unique_ptr<ControlTask> LoadingPipeline::Sleep(ControlDone done) {
  std::vector<std::string> names;
  for (const auto& [name, model] : shelf_.models()) {
    if (model.waiting + model.using_it > 0) return Unload(name, std::move(done));  // says why not
    if (model.news.state != ModelState::kAbsent) names.push_back(name);
  }
  for (const std::string& name : names) shelf_.Unload(name);
  if (!names.empty()) slept_ = names;
  return WatchAll(names, false, done);
}

std::unique_ptr<ControlTask> LoadingPipeline::WakeUp(ControlDone done) {
  std::vector<std::string> names;
  for (const std::string& name : std::exchange(slept_, {})) {
    if (shelf_.Find(name) == nullptr) continue;
    shelf_.Want(name, Now());
    names.push_back(name);
  }
  return WatchAll(names, true, done);
}

std::unique_ptr<ControlTask> LoadingPipeline::StartJob(OrderKind kind, const std::string& name,
                                                       JobProgress progress,
                                                       std::optional<ApiError>& refused) {
  if (jobs_.size() >= serve::kMaxJobs) {
    metrics_.jobs_refused.Add();
    refused = ApiError{
        ApiCode::kUnavailable,
        std::to_string(serve::kMaxJobs) + " pulls and removals are under way already", "", 5000};
    return nullptr;
  }
  const uint64_t id = ++last_job_;
  jobs_[id] = std::move(progress);
  metrics_.jobs.Set(static_cast<double>(jobs_.size()));
  const bool pull = kind == OrderKind::kPull;
  runtime_.order({kind, name, id, pull ? options_.max_pull_bytes : 0});
  return std::make_unique<Task>([this, id, pull] {
    if (jobs_.erase(id) == 0) return;
    metrics_.jobs.Set(static_cast<double>(jobs_.size()));
    if (!pull) return;
    runtime_.order({OrderKind::kCancel, "", id});
  });
}

std::unique_ptr<ControlTask> LoadingPipeline::Pull(const std::string& name, JobProgress progress,
                                                   std::optional<ApiError>& refused) {
  return StartJob(OrderKind::kPull, name, std::move(progress), refused);
}

std::unique_ptr<ControlTask> LoadingPipeline::Remove(const std::string& name, JobProgress progress,
                                                     std::optional<ApiError>& refused) {
  const ModelShelf::Model* model = shelf_.Find(name);
  if (model != nullptr && model->news.state != ModelState::kAbsent) {
    refused = ApiError{ApiCode::kConflict, "model " + name + " is loaded; unload it first", "", 0};
    return nullptr;
  }
  return StartJob(OrderKind::kRemove, name, std::move(progress), refused);
}

}  // namespace quire
