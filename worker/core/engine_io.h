// The engine's input and output: plain values in two bounded queues.
//
// The engine's thread owns Engine; the rpc thread owns the sessions. They share only these queues
// and StepProgress.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/wire/values.h"
#include "worker/core/attempt_record.h"

namespace quire::grammar {
class Grammar;
}
namespace quire::kernels {
class AdapterWeights;
}

namespace quire {

// Time points here are microseconds of the same monotonic clock as the time that RunOnce gets.
inline constexpr int64_t kNeverMicros = std::numeric_limits<int64_t>::max();

struct SubmitCommand {
  RouterInstance router;
  Submit submit;                       // its shape has been checked by rpc, its values not yet
  int64_t deadline_us = kNeverMicros;  // from remaining_ms at arrival
  // Of a Submit with a constraint: its grammar, or the number of the GrammarCommand with which it
  // comes. Until then the request waits without pages.
  std::shared_ptr<const grammar::Grammar> grammar = nullptr;
  uint64_t compiling = 0;
};
// What has become of the constraint of a Submit that waits for it.
struct GrammarCommand {
  RouterInstance router;
  AttemptKey key;
  uint64_t compiling = 0;
  std::shared_ptr<const grammar::Grammar> grammar;  // null: `refused` says why
  Refused refused;
  int64_t compile_us = 0;  // the time that compiling took
};
struct CancelCommand {
  RouterInstance router;
  Cancel cancel;
};
struct FinishCommand {
  RouterInstance router;
  Finish finish;
};
struct GrantCommand {
  RouterInstance router;
  Grant grant;
};
// Its Attach has ended: all its attempts end as ROUTER_LOST within a step; nothing more is sent to
// it.
struct RouterLostCommand {
  RouterInstance router;
};
// The router receives cache events, until its Attach ends.
struct WatchCommand {
  RouterInstance router;
};
// Resends what is cached, in parts; a newer snapshot of the same router replaces it.
struct SnapshotCommand {
  RouterInstance router;
  uint64_t snapshot_number = 0;
};
// This many more parts of a snapshot have been sent: as many may follow.
struct SnapshotSentCommand {
  RouterInstance router;
  uint64_t snapshot_number = 0;
  uint32_t parts = 0;
};
// No new work is admitted; waiting work is returned as DRAINED (retryable); running work continues
// until deadline_us and is then ended as DRAINED.
struct DrainCommand {
  int64_t deadline_us = 0;
};
// Puts an adapter into a slot: a free one, or that of an adapter which no request in memory uses.
// First go those that are neither kept nor named, then those that are not kept, the least recently
// used first. A digest that is held already changes nothing.
struct AdapterCommand {
  uint64_t number = 0;  // of the answer in EngineOutput::adapters
  std::string digest;
  std::shared_ptr<const kernels::AdapterWeights> weights;
  std::vector<std::string> kept;   // digests that stay
  std::vector<std::string> named;  // digests that clients may still ask for
};
using EngineCommand = std::variant<SubmitCommand, GrammarCommand, CancelCommand, FinishCommand,
                                   GrantCommand, RouterLostCommand, WatchCommand, SnapshotCommand,
                                   SnapshotSentCommand, DrainCommand, AdapterCommand>;

// What became of an AdapterCommand.
struct AdapterPlaced {
  uint64_t number = 0;
  int slot = -1;        // −1: every slot is kept or in use
  std::string evicted;  // the digest that gave way
};

// Parts of one snapshot that are made before one of them has been sent.
inline constexpr int64_t kSnapshotWindow = 16;

// The output of one RunOnce for one router.
struct RouterOutput : StepLists {
  RouterInstance router;
};

struct SnapshotPart : SnapshotChunk {
  RouterInstance router;
};

struct EngineOutput {
  int64_t next_wakeup_us = kNeverMicros;  // call RunOnce again then, or when a command arrives
  bool stepped = false;                   // a step ran and was committed
  int64_t step_predicted_us = 0;          // time of that step
  std::vector<RouterOutput> routers;
  uint64_t event_seq = 0;           // after this call
  uint64_t first_event_seq = 0;     // of `events`
  std::vector<CacheEvents> events;  // fewer than were numbered when no router watches
  std::vector<SnapshotPart> snapshot_parts;
  std::vector<AttemptRecord> records;  // of the attempts that ended
  std::vector<AdapterPlaced> adapters;
  Load load;
  bool drained = false;  // draining, and no work is left
  // The device is lost, or is back and has not computed anything yet: all attempts have been ended,
  // and none is admitted.
  bool device_lost = false;
  // Devices lost so far. When one is back, cache events and snapshots start over.
  uint64_t devices_lost = 0;
};

// The engine's progress, which other threads read (health, frames) without waiting for it.
struct StepProgress {
  std::atomic<int64_t> running_since_us{0};  // 0: no step is running
  std::atomic<int64_t> running_limit_us{0};  // max(2 s, 10 × predicted) of the running step
  std::atomic<int64_t> last_step_end_us{0};  // a real step or the idle probe
  std::atomic<uint64_t> steps_total{0};
  std::atomic<bool> device_lost{false};  // see EngineOutput
};

}  // namespace quire
