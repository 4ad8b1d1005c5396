// A whole worker on virtual time: the real sessions and engine over the tag model.
//
// One thread, that of the world; each life is a process with a clock of its own. Crash and Start
// may follow each other; every Start is a new epoch.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/runtime/virtual_runtime.h"
#include "tests/support/fleet_sim/stoppable.h"
#include "worker/adapters/adapter_table.h"
#include "worker/core/attempt_record.h"
#include "worker/engine/engine.h"

namespace quire::sim {

inline constexpr char kSimModel[] = "tag";
inline constexpr char kSimNextModel[] = "tag-2";  // what a rolling update brings: other answers
inline constexpr uint32_t kSimChoices = 4;        // that a request may have at most

// The model of an answer that may have been begun with an adapter (AnswererOf).
inline std::string SimModelOf(const std::string& answerer) {
  return answerer.substr(0, answerer.find('+'));
}

struct SimWorkerOptions {
  std::string name;
  int64_t page_count = 600;
  int32_t max_waiting = 16;
  int32_t max_rows = 8;  // at least kSimChoices
  int32_t snapshot_slice = 4000;
  size_t max_unsent_hashes = 0;  // of cache events, by router; 0: the hub's own limit
  std::string model_id = kSimModel;
  int first_adapter = 0;  // its slots are dealt from this one on
  bool plain = false;     // its Hello lists no optional feature: the oldest that is understood
};

class SimWorker {
 public:
  // `world` outlives it. It runs at once.
  SimWorker(VirtualWorld& world, const SimWorkerOptions& options);
  ~SimWorker();

  const std::string& target() const { return target_; }
  const std::string& name() const { return name_; }
  bool up() const { return parts_ != nullptr; }
  Epoch epoch() const { return Epoch(epoch_); }
  bool draining() const { return draining_; }
  // Whether it can be reached and goes on with its steps, or will once its process does.
  bool serves() const { return up() && listening_ && !frozen_ && !draining_; }
  const std::string& model_id() const { return options_.model_id; }
  bool plain() const { return plain_; }
  // Of the process that runs; nullptr when none does.
  StoppableExecutor* process();

  // Told each attempt's record with the epoch that it is of.
  using RecordTaker = std::function<void(Epoch, const AttemptRecord&)>;
  void SetRecordTaker(RecordTaker taker);
  // Stands between the wire and the worker from the next link on.
  using Wrapper = std::function<std::unique_ptr<FrameStream>(std::unique_ptr<FrameStream>)>;
  void SetWrapper(Wrapper wrapper) { wrapper_ = std::move(wrapper); }
  // What the next Start brings.
  void SetModel(std::string model_id) { options_.model_id = std::move(model_id); }
  void SetPlain(bool plain) { plain_ = plain; }

  void Start();
  void Listen();
  // Its address refuses connections, those that there are break; the process lives.
  void Unlisten();
  // As kill -9: streams break at once, nothing is said.
  void Crash();
  // A step that does not end.
  void SetFrozen(bool frozen);
  // As SIGTERM: no new work; what runs is moved away after `grace`, and ended after twice of it.
  // The process leaves when nothing is left.
  void Drain(Micros grace);

  // Nothing of any request is left: no block is held, no row runs.
  bool AtRest() const;
  // Blocks of all kinds that its cache has published.
  uint64_t PublishedBlocks() const;
  // Whether it may have been so many when this event of the running epoch was the last one.
  bool MayHavePublished(uint64_t blocks, uint64_t event_seq) const;

 private:
  struct Parts;

  VirtualWorld& world_;
  const std::string name_;
  const std::string target_;
  const std::unique_ptr<AdapterTable> adapters_;
  EngineOptions options_;
  size_t max_unsent_hashes_ = 0;
  bool plain_ = false;
  uint64_t epoch_ = 0;
  bool draining_ = false;
  bool listening_ = false;
  bool frozen_ = false;
  Wrapper wrapper_;
  RecordTaker take_record_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace quire::sim
