// The models of one machine under `quire serve`, and the workers of those that are loaded: starts
// them, restarts them, ends them, and deals out memory.
//
// Owner: the supervisor, on its thread; no call here blocks.
//  1. The required model is what `quire serve MODEL` was started for: its first failure ends serve,
//     its workers start again when they die, and it may have several.
//  2. Any other model has one worker, from Load to Unload; a worker of it that dies while it loads
//     makes it absent, with the reason.
//  3. The memory that loaded models may take is at most what the machine had to give when serve
//     began; a model that needs more is reported as no_room.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve/child_process.h"
#include "cli/serve/restart_policy.h"
#include "common/serve/lines.h"

namespace quire::cli {

struct HostedModel {
  std::string name;
  std::string path;
  int64_t file_bytes = 0;  // of its weights
  int64_t modified = 0;    // unix seconds
  bool required = false;
  bool named_by_flag = false;  // the worker's own arguments say its served name
};

struct HostOptions {
  std::string worker_program;
  std::vector<std::string> worker_args;       // of all
  int workers = 1;                            // of the required model
  std::string worker_listen = "127.0.0.1:0";  // of the required model
  std::vector<std::string> environment;       // of all children
  std::vector<std::string> secrets;           // of workers besides
  int64_t memory_bytes = 0;  // of all loaded models together; 0: what the machine has to give
};

// Memory for a model of this size: what it must have, and what it is given of `left` beside the
// others, so that another one finds some too. Pure.
int64_t LeastMemory(int64_t file_bytes);
int64_t MemoryShare(int64_t file_bytes, int64_t left);

class ModelHost {
 public:
  using Tell = std::function<void(const serve::ModelNews& news)>;

  ModelHost(HostOptions options, Tell tell);
  ~ModelHost();

  // A name that is known keeps its state.
  void Add(const HostedModel& model);
  void Forget(const std::string& name);  // one that is absent
  const HostedModel* Find(const std::string& name) const;
  void TellAll() const;

  void Load(const std::string& name);
  void Unload(const std::string& name);
  void Stop();  // SIGTERM to all workers; none starts any more
  void SignalAll(int signal);
  void KillAll();

  // What the supervisor's loop calls, once it has waited.
  void AddDescriptors(std::vector<int>& descriptors) const;  // readable: Work has something to do
  int64_t NextStartMs() const;                               // −1: none is due
  void Work(int64_t now_ms);

  bool any_running() const;
  // Each worker of the required model has served, or was given up.
  bool settled() const;
  std::optional<int> failure() const { return failure_; }  // serve ends with this code
  std::string memory_line() const;                         // of the required model

 private:
  struct Worker;
  struct Model;

  Model* Get(const std::string& name);
  void StartWorker(Model& model, Worker& worker);
  void OnReady(Model& model, Worker& worker, const std::string& line);
  void OnDeath(Model& model, Worker& worker, int code);
  void OnDeathOfRequired(Model& model, Worker& worker, int code);
  void Settle(Model& model);
  void Say(const Model& model) const;
  int64_t MemoryLeft() const;
  int FreeNumber() const;

  const HostOptions options_;
  const Tell tell_;
  const int64_t memory_bytes_;
  std::map<std::string, std::unique_ptr<Model>> models_;
  std::optional<int> failure_;
  bool stopping_ = false;
};

}  // namespace quire::cli
