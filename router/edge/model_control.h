// What clients and operators may do about the models of a machine that `quire serve` serves: see
// them, load and unload them, pull and remove them.
//
// Owner: main; event loop only. A cluster's router has none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/serve/lines.h"
#include "router/core/api.h"

namespace quire {

struct MachineModel {
  std::string name;
  serve::ModelState state = serve::ModelState::kAbsent;
  int64_t file_bytes = 0;    // of its weights
  int64_t memory_bytes = 0;  // that it may take while it is loaded
  int64_t modified = 0;      // unix seconds
  uint32_t requests = 0;     // that use it, or wait for it
  // Unix seconds when it is unloaded; empty: time does not unload it.
  std::optional<int64_t> until = std::nullopt;
  std::string error = {};  // why the last load failed
  serve::ModelMakeup makeup = {};
};

// Ends with nullopt, or with why not. Later, never inside the call.
using ControlDone = std::function<void(std::optional<ApiError>)>;
using JobProgress = std::function<void(const serve::JobNews&)>;  // the last one is done

// Work that its client waits for; destroying it means that the client has left, and cancels a pull.
class ControlTask {
 public:
  virtual ~ControlTask() = default;
};

class ModelControl {
 public:
  virtual ~ModelControl() = default;

  virtual std::vector<MachineModel> MachineModels() const = 0;  // by name
  // Of the name that a client uses: its aliases, and Ollama's ":latest"; empty: there is none.
  virtual std::string MachineName(const std::string& name) const = 0;
  // The same for an entry of Pipeline::Models.
  virtual std::string MachineNameOf(const ModelEntry& entry) const {
    return MachineName(entry.name);
  }
  // Ends when it is loaded. kNotFound for a name that MachineModels does not have.
  virtual std::unique_ptr<ControlTask> Load(const std::string& name, ControlDone done) = 0;
  // Ends when its memory is free again. kConflict while requests use it.
  virtual std::unique_ptr<ControlTask> Unload(const std::string& name, ControlDone done) = 0;
  // Unloads everything that is loaded, and later loads it again. kConflict while requests run.
  virtual std::unique_ptr<ControlTask> Sleep(ControlDone done) = 0;
  virtual std::unique_ptr<ControlTask> WakeUp(ControlDone done) = 0;
  // Nothing has been loaded since Sleep.
  virtual bool Asleep() const = 0;
  // From now on it is unloaded when no request has used it for this time; < 0: never.
  virtual void KeepAlive(const std::string& name, Micros time) = 0;
  // kUnavailable when kMaxJobs are under way.
  virtual std::unique_ptr<ControlTask> Pull(const std::string& name, JobProgress progress,
                                            std::optional<ApiError>& refused) = 0;
  // kConflict while requests use it.
  virtual std::unique_ptr<ControlTask> Remove(const std::string& name, JobProgress progress,
                                              std::optional<ApiError>& refused) = 0;
};

}  // namespace quire
