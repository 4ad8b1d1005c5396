// What a router believes its worker to have cached: a set, kept by events and snapshots, and held
// against the worker's pool wherever it has to be exact.
//
// Owned by SimRouter; one thread, that of the world. Rules of the wire that it judges:
// 1. Events are numbered without gaps; what is left out is said to be dropped.
// 2. Parts of a snapshot are numbered, and leave in order with the events.
// 3. From a snapshot's end marker on the set is the pool's, at that mark and after every event.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "tests/support/engine_sim/sim_world.h"

namespace quire::sim {

class CacheModel {
 public:
  CacheModel(SimWorld& shared, bool wants_events) : shared_(shared), wants_events_(wants_events) {}

  // A new Attach: nothing is known.
  void Greeted(const WorkerHello& hello);
  // The number to ask for a snapshot with; what was known is given up.
  uint64_t Ask();
  void Hear(const StepFrame& step);
  void Hear(const SnapshotChunk& chunk);

  // Whether it may ask on this Attach, and whether it needs to.
  bool follows() const { return follows_; }
  bool lost() const { return follows_ && state_ == State::kLost; }

  // Nothing that has happened to the cache is still to be told.
  bool KnowsTheLastEvent() const;

  // At rest it has to know all of it.
  void JudgeTheEnd() const;

 private:
  enum class State { kLost, kSyncing, kExact };

  void Apply(const CacheEvents& event);
  void JudgeAt(uint64_t event_seq, const char* coverage) const;
  void LoseTrack();

  SimWorld& shared_;
  const bool wants_events_;
  bool follows_ = false;
  State state_ = State::kLost;
  uint64_t epoch_ = 0;
  uint32_t kinds_ = 0;
  bool seq_known_ = false;
  uint64_t seq_ = 0;     // of the last event heard of
  uint64_t number_ = 0;  // of the snapshot asked for
  uint32_t next_part_ = 0;
  std::set<std::pair<uint32_t, uint64_t>> blocks_;  // kind and hash
};

}  // namespace quire::sim
