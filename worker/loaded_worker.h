// From settings to an engine that has produced a token: device, model, memory, weights, canary.
//
// Owner: main. LoadWorker runs on the main thread before the engine has its own; nothing here uses
// the network.
//  1. Members are destroyed in reverse order: each uses those above it.
//  2. A LoadedWorker has computed a real token through engine, runner and kernels.
#pragma once

#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/wire/hello.h"
#include "kernels/backend.h"
#include "worker/adapters/adapter_table.h"
#include "worker/config.h"
#include "worker/constrain/constraint_compiler.h"
#include "worker/constrain/mask_pool.h"
#include "worker/core/engine_io.h"
#include "worker/device/device_choice.h"
#include "worker/device/device_monitor.h"
#include "worker/draft/speculation.h"
#include "worker/draft_setup.h"
#include "worker/engine/adapter_metrics.h"
#include "worker/engine/engine.h"
#include "worker/group_adapters.h"
#include "worker/head_setup.h"
#include "worker/load/memory_plan.h"
#include "worker/model/model.h"
#include "worker/plan_report.h"
#include "worker/ranks/rank_group.h"
#include "worker/runner/runner.h"
#include "worker/worker_hello.h"

namespace quire {

// The program's version and build.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadArguments = 2;
inline constexpr int kExitModelUnusable = 3;
inline constexpr int kExitDeviceUnusable = 4;

struct LoadedWorker {
  StepProgress progress;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<kernels::Backend> backend;
  AdapterTable adapters;
  std::unique_ptr<GroupAdapters> group_adapters;    // of ranks; null: they have none
  std::unique_ptr<kernels::LoadedProgram> program;  // with one rank instead of the engine's group
  AdapterPack pack_adapter;                         // absent: none are served
  std::unique_ptr<RankMetrics> rank_metrics;
  std::unique_ptr<DeviceMonitor> device_monitor;  // of the ranks' GPUs
  std::unique_ptr<RankHost> rank_host;            // with a group of ranks
  std::shared_ptr<SharedVocabulary> vocabulary;   // of constraints; null: none are served
  std::unique_ptr<MaskPool> masks;                // the same
  std::unique_ptr<DraftModel> draft_model;        // null: there is none
  std::unique_ptr<DraftHeadSetup> draft_head;     // the same
  std::unique_ptr<Runner> runner;
  RankGroup* ranks = nullptr;  // the runner, when it is a group
  std::unique_ptr<EngineMetrics> metrics;
  std::unique_ptr<AdapterMetrics> adapter_metrics;
  std::unique_ptr<Drafter> drafter;  // null: nothing is drafted
  std::unique_ptr<Engine> engine;
  WorkerHello hello;  // epoch and worker_id are main's
  ModelMakeup makeup;
  int64_t planned_bytes = 0;  // weights, workspace, adapters and cache
  std::string memory_line;    // the memory plan in one line
  load::MemoryPlan plan;
};

struct StartFailure {
  int exit_code = kExitFailed;
  std::string message;  // one line that names flag, file or tensor and what would work
};

// Loads in two halves: Prepare finds out quickly whether the worker can work, Load takes longer.
// All arguments outlive the loader; `clock` and `metrics` outlive the worker too.
class WorkerLoader {
 public:
  // `device` is the meaning of `config` that FindDevice found.
  WorkerLoader(const WorkerConfig& config, const DeviceChoice& device, const Clock& clock,
               Metrics& metrics, Logger& log);
  ~WorkerLoader();

  // Opens device and model, chooses the context, plans memory. False with `failure` filled in; it
  // then writes nothing to `log`, so that the failure is the only line.
  bool Prepare(StartFailure& failure);
  // After Prepare: the plan, for --plan; it measures how fast memory is read.
  PlanReport Report() const;
  // After Prepare, once: packs the weights, shows progress on standard error, builds the engine and
  // has it produce a token. Null with `failure` filled in.
  std::unique_ptr<LoadedWorker> Load(StartFailure& failure);

 private:
  class Steps;
  std::unique_ptr<Steps> steps_;
};

}  // namespace quire
