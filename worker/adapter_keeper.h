// The adapters of a running worker: which names it serves, what each of them means, and how that
// changes by orders of routers and by --lora-dir.
//
// Owner: main. Everything happens on the rpc executor; folders are read and matrices packed in the
// background, and the engine puts them into slots between two steps.
//  1. A name means a content that is in a slot. Contents without a name stay in their slots until
//     another one needs the place: what was asked for under them ends under them, and a name can be
//     switched back at once.
//  2. Loads happen one after another. At most max_jobs orders wait or are under way.
//  3. What --lora-dir names, it alone changes; that, and what --lora-modules names, gives way to
//     nothing.
//  4. A wrong entry of --lora-dir is one line of the log, and changes nothing else.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/log/log.h"
#include "common/runtime/timer.h"
#include "worker/adapter_job_metrics.h"
#include "worker/adapters/adapter_reader.h"
#include "worker/adapters/adapter_table.h"
#include "worker/adapters/desired_adapters.h"
#include "worker/core/engine_io.h"
#include "worker/engine/adapter_metrics.h"
#include "worker/rpc/adapter_control.h"

namespace quire {

inline constexpr size_t kMaxAdapterJobs = 16;
inline constexpr uint32_t kAdapterJobsRetryMs = 1000;
inline constexpr Micros kDesiredLookInterval = kMicrosPerSecond / 2;
// An entry of --lora-dir that found no slot, or ranks that were not there, is tried again after
// this time.
inline constexpr Micros kNoSlotPause = 5 * kMicrosPerSecond;

struct AdapterKeeperOptions {
  std::string lora_dir;                   // empty: there is none
  std::vector<std::string> served_names;  // of the model, the first one its main name
  int max_loras = 0;
  bool on_loopback = false;  // operators may be on this machine
  size_t max_jobs = kMaxAdapterJobs;
};

// AdapterReader::Read.
using AdapterRead = std::function<absl::StatusOr<AdapterContent>(
    const AdapterPlace& place, const std::vector<std::string>& held)>;

// The outside of a keeper; all of it outlives the keeper.
struct AdapterKeeperWorld {
  Executor& executor;
  Background& background;
  AdapterJobMetrics& job_metrics;
  Logger& log;
  AdapterMetrics& adapter_metrics;
  AdapterRead read = nullptr;                           // called in the background
  std::function<bool(EngineCommand&&)> push = nullptr;  // to the engine
  std::function<void(AdaptersChanged)> tell = nullptr;  // to the routers
};

class AdapterKeeper final : public AdapterControl {
 public:
  AdapterKeeper(AdapterKeeperOptions options, AdapterKeeperWorld world,
                const AdapterTable& at_start);
  ~AdapterKeeper() override;

  // Before the engine's thread runs: loads what --lora-dir names, through `place`, which applies a
  // command. An error where the folder cannot be read.
  absl::Status LoadAtStart(const std::function<AdapterPlaced(AdapterCommand)>& place);
  // From now on --lora-dir is watched.
  void Start();

  void Order(const AdapterOrder& order, std::function<void(AdapterResult)> done) override;
  // The outputs of the engine, each once.
  void Take(const EngineOutput& output);

  AdaptersChanged Current() const;

 private:
  enum class Source : uint8_t { kFlag, kOrder, kDir };
  struct Served {
    std::string digest;
    int rank = 0;
    Source source = Source::kOrder;
    std::string folder;
    std::string fingerprint;  // of --lora-dir's
  };
  struct Held {
    int slot = 0;
    std::shared_ptr<const kernels::AdapterWeights> weights;  // freed in the background
  };
  // An entry of --lora-dir, as it was seen last.
  struct Wanted {
    AdapterPlace place;
    std::string fingerprint;
  };
  struct Seen;
  struct Failed {
    std::string folder;
    std::string fingerprint;
    std::string why;
    Micros again_at = -1;  // tried once more then, though nothing has changed; −1: never
  };
  struct Known {
    std::string fingerprint;
    std::string digest;
    int rank = 0;
  };
  struct Job {
    AdapterOrder order;
    std::function<void(AdapterResult)> done;  // empty: of --lora-dir
    AdapterPlace place;
    std::string fingerprint;
    Micros began = 0;
    AdapterContent content;  // once it is read
    bool desired() const { return done == nullptr; }
  };
  using Verdict = std::pair<AdapterVerdict, std::string>;

  // Jobs.
  void BeginSoon();
  void BeginNext();
  std::optional<Verdict> Refusal(Job& job) const;
  Verdict Unload(const std::string& name);
  void Read();
  void OnRead(absl::StatusOr<AdapterContent> content);
  AdapterCommand CommandFor(const Job& job) const;
  Verdict TakePlace(Job& job, const AdapterPlaced& placed);
  Verdict Serve(Job& job);
  void Finish(Verdict verdict);
  void NoteEnd(const Job& job, const Verdict& verdict);
  void GiveWay(const std::string& digest, const std::string& replaced);
  void Tell();
  std::vector<std::string> HeldDigests() const;

  // --lora-dir.
  void Look();
  static std::shared_ptr<Seen> LookAt(const std::string& dir);
  void TakeSeen(Seen& seen);
  void Reconcile();
  bool SwitchAtOnce(const std::string& name, const Wanted& wanted);
  Job JobFor(const std::string& name, const Wanted& wanted) const;

  const AdapterKeeperOptions options_;
  const AdapterKeeperWorld world_;
  std::map<std::string, Served> names_;
  std::map<std::string, Held> held_;  // by digest

  std::deque<Job> orders_;          // that wait
  std::optional<Job> desired_job_;  // that waits
  std::optional<Job> running_;
  uint64_t placing_ = 0;  // the number of the command that is under way; 0: none
  uint64_t last_command_ = 0;

  std::optional<std::map<std::string, Wanted>> wanted_;  // none: it was never seen whole
  std::map<std::string, std::string> problems_;          // by entry
  std::string unreadable_;                               // why it cannot be seen now
  std::map<std::string, Failed> failed_;                 // by name
  std::map<std::string, Known> known_;                   // by folder
  Timer look_timer_{world_.executor};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace quire
