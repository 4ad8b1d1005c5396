// A pipeline in front of the router's own, for a machine whose models are loaded when they are
// asked for: a request whose model is not loaded waits here while `quire serve` starts a worker.
//
// Owner: main, on the router's executor. ModelShelf decides; this class keeps the requests and
// passes on what it decides.
//  1. A request counts for its model from Start to its end, so that the model stays.
//  2. At most max_held requests wait for models, each for at most load_timeout; what they hold is
//     charged to their tenants.
//  3. Without news from `quire serve` of any model, it is the pipeline behind it.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/timer.h"
#include "router/edge/model_control.h"
#include "router/loading/model_shelf.h"
#include "router/pipeline/pipeline.h"

namespace quire {

struct LoadingOptions {
  ShelfLimits shelf;
  uint32_t max_held = 512;
  Micros load_timeout = 300 * kMicrosPerSecond;
  int64_t max_pull_bytes = int64_t{200} << 30;  // of a model that a client pulls
  std::map<std::string, std::string> aliases = {};
};

struct LoadingMetrics {
  explicit LoadingMetrics(Metrics& metrics);
  Counter& loads;
  Counter& failures;
  Counter& refused;
  Gauge& held;
  Gauge& loaded;
  Gauge& jobs;
  Counter& jobs_refused;
  Counter& pulls_too_large;
};

// The outside of a LoadingPipeline; outlives it.
struct LoadingRuntime {
  Executor& executor;
  Logger& logger;
  Metrics& metrics;
  std::function<void(const serve::Order&)> order;                        // to `quire serve`
  std::function<void(std::vector<serve::WorkerPlace>)> workers_changed;  // of all models
};

class LoadingPipeline final : public Pipeline, public ModelControl {
 public:
  LoadingPipeline(Pipeline& inner, LoadingOptions options, LoadingRuntime runtime);
  ~LoadingPipeline() override;

  // From `quire serve`.
  void Heard(const serve::News& news);

  RequestId Start(GenerateRequest request, ResponseSink* sink) override;
  void Cancel(RequestId request) override;
  void Taken(RequestId request, uint32_t choice, uint64_t index) override;
  void WorkersNamed(const std::string& source, std::vector<std::string> targets) override {
    inner_.WorkersNamed(source, std::move(targets));
  }
  void UseSaltKey(const std::string& key) override { inner_.UseSaltKey(key); }
  std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile* tenant) override {
    return inner_.MemoryOf(tenant);
  }
  std::vector<ModelEntry> Models() const override;
  Result<std::shared_ptr<const ModelText>> TextOf(const std::string& name) override;
  void Tokenize(TokenizeAsk ask, TokenizeDone done) override;
  void Detokenize(TextAsk by, std::vector<TokenId> ids, DetokenizeDone done) override;
  bool Ready() const override { return !draining_ && (inner_.Ready() || LoadsOnDemand()); }
  bool Healthy() const override { return inner_.Healthy() || LoadsOnDemand(); }
  void StartDraining() override;
  void EndAll(const ApiError& error) override;
  size_t LiveRequests() const override { return live_.size(); }
  trace::RequestTrace TraceOf(RequestId request) const override;
  Result<std::unique_ptr<AdapterTask>> OrderAdapters(AdapterAsk ask, AdapterDone done) override {
    return inner_.OrderAdapters(std::move(ask), std::move(done));
  }
  std::vector<WorkerStatus> Workers() const override { return inner_.Workers(); }
  std::vector<RunningRequest> Running(std::string_view request_id) const override {
    return inner_.Running(request_id);
  }
  void CheckInvariants() const override;

  std::vector<MachineModel> MachineModels() const override;
  std::string MachineName(const std::string& name) const override;
  std::string MachineNameOf(const ModelEntry& entry) const override;
  std::unique_ptr<ControlTask> Load(const std::string& name, ControlDone done) override;
  std::unique_ptr<ControlTask> Unload(const std::string& name, ControlDone done) override;
  std::unique_ptr<ControlTask> Sleep(ControlDone done) override;
  std::unique_ptr<ControlTask> WakeUp(ControlDone done) override;
  bool Asleep() const override { return !slept_.empty() && shelf_.loaded() == 0; }
  void KeepAlive(const std::string& name, Micros time) override;
  std::unique_ptr<ControlTask> Pull(const std::string& name, JobProgress progress,
                                    std::optional<ApiError>& refused) override;
  std::unique_ptr<ControlTask> Remove(const std::string& name, JobProgress progress,
                                      std::optional<ApiError>& refused) override;

  size_t held() const { return held_; }

 private:
  struct Live;
  class Task;
  // Somebody who waits until a model is loaded, or absent.
  struct Watcher {
    uint64_t id;
    std::string model;
    bool loaded;
    Micros deadline;
    ControlDone done;
  };

  void Launch(Live& live);
  // Why it cannot wait; else it waits.
  std::optional<ApiError> Hold(Live& live);
  std::unique_ptr<Live> Take(RequestId id);
  void Fail(RequestId id, const ApiError& error);
  void FailLater(RequestId id, ApiError error);
  std::vector<RequestId> Waiting() const;

  // The shelf's name of the model that a client names; empty: it has none.
  std::string RequestedName(const std::string& name) const;
  std::string ShelfName(const std::string& name) const;
  std::string OtherName(const std::string& name, const std::vector<ModelEntry>& known) const;
  std::string ModelBehind(const ModelEntry& entry) const;
  // Of a name that the shelf does not have: only the pipeline behind knows whether it is served.
  bool MayBeBehind(const std::string& name) const;
  // Nothing is loaded, and what is asked for will be.
  bool LoadsOnDemand() const;
  // The pipeline behind has a worker of the loaded model, or must cope without.
  bool Attached(const std::string& name);
  ApiError NotLoaded(const serve::ModelNews& news) const;
  ApiError NotHere(const std::string& name) const;
  uint32_t RetryAfterMs(const serve::ModelNews& news) const;
  std::optional<ApiError> WakeForText(const std::string& name);

  void On(const serve::ModelNews& news);
  void On(const serve::JobNews& news);
  void NameWorkers();
  // Starts what waits and may begin now.
  void LookSoon();
  void Look();
  void LookAtHeld();
  void LookAtWatchers();
  void Tick();
  std::unique_ptr<ControlTask> Watch(const std::string& name, bool loaded, ControlDone done);
  std::unique_ptr<ControlTask> WatchAll(const std::vector<std::string>& names, bool loaded,
                                        const ControlDone& done);
  std::unique_ptr<ControlTask> StartJob(serve::OrderKind kind, const std::string& name,
                                        JobProgress progress, std::optional<ApiError>& refused);
  Micros Now() const { return runtime_.executor.clock().Now(); }

  Pipeline& inner_;
  const LoadingOptions options_;
  const LoadingRuntime runtime_;
  ModelShelf shelf_;
  std::map<RequestId, std::unique_ptr<Live>> live_;
  std::list<Watcher> watchers_;
  std::map<uint64_t, JobProgress> jobs_;
  std::vector<serve::WorkerPlace> named_;      // workers of all models
  std::map<std::string, Micros> ready_since_;  // of loaded models; 0: attached
  std::set<std::string> removed_;              // names of models that were of this machine
  std::vector<std::string> slept_;             // what the last Sleep unloaded
  RequestId last_id_ = 0;
  uint64_t last_job_ = 0;
  size_t held_ = 0;
  bool draining_ = false;
  bool looking_ = false;
  Timer look_timer_{runtime_.executor}, tick_timer_{runtime_.executor};
  LoadingMetrics metrics_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by posted work
};

}  // namespace quire
