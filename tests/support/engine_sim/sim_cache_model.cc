#include "tests/support/engine_sim/sim_cache_model.h"

#include <algorithm>

#include "common/wire/features.h"

namespace quire::sim {

void CacheModel::Greeted(const WorkerHello& hello) {
  epoch_ = hello.epoch.value();
  kinds_ = static_cast<uint32_t>(shared_.scenario.engine.cache_kinds.size());
  seq_known_ = false;
  follows_ = wants_events_ && std::find(hello.features.begin(), hello.features.end(),
                                        kFeatureSnapshot) != hello.features.end();
  LoseTrack();
}

void CacheModel::LoseTrack() {
  state_ = State::kLost;
  blocks_.clear();
}

uint64_t CacheModel::Ask() {
  shared_.coverage.Add(state_ == State::kSyncing ? "snapshots overtaken" : "snapshots");
  LoseTrack();
  state_ = State::kSyncing;
  next_part_ = 0;
  return ++number_;
}

void CacheModel::Hear(const StepFrame& step) {
  if (!wants_events_) {
    if (!step.events.empty()) shared_.Violate("events are told to who does not want them");
    return;
  }
  if (seq_known_ && step.event_seq < seq_) shared_.Violate("event numbers go backwards");
  const uint64_t before = step.events.empty() ? step.event_seq : step.first_event_seq - 1;
  if (step.events_dropped) {
    shared_.coverage.Add("events dropped");
    LoseTrack();
  } else if (seq_known_ && before != seq_) {
    shared_.Violate("events are left out and nobody says so");
  }
  if (before + step.events.size() != step.event_seq) {
    shared_.Violate("a frame's events do not lead to its event number");
  }
  seq_known_ = true;
  seq_ = step.event_seq;
  for (const CacheEvents& event : step.events) Apply(event);
  if (!step.events.empty()) JudgeAt(seq_, "caches judged after events");
}

void CacheModel::Apply(const CacheEvents& event) {
  if (event.cache_kind >= kinds_) return shared_.Violate("an event of a kind that there is not");
  shared_.coverage.Add("events");
  if (state_ == State::kLost) return;
  if (event.kind == CacheEvents::Kind::kCleared) {
    std::erase_if(blocks_, [&](const auto& block) { return block.first == event.cache_kind; });
    return;
  }
  for (const uint64_t hash : event.hashes) {
    const bool stores = event.kind == CacheEvents::Kind::kStored;
    const bool changed = stores ? blocks_.insert({event.cache_kind, hash}).second
                                : blocks_.erase({event.cache_kind, hash}) > 0;
    if (!changed && state_ == State::kExact) {
      shared_.Violate(stores ? "a block is stored twice" : "a block is removed that is not there");
    }
  }
}

void CacheModel::Hear(const SnapshotChunk& chunk) {
  if (!follows_ || chunk.snapshot_number > number_) {
    return shared_.Violate("a snapshot comes that nobody asked for");
  }
  if (state_ != State::kSyncing || chunk.snapshot_number != number_) return;
  if (chunk.index != next_part_++) shared_.Violate("a part of a snapshot is left out");
  if (chunk.cache_kind >= kinds_) return shared_.Violate("a part of a kind that there is not");
  if (seq_known_ && chunk.event_seq != seq_) {
    shared_.Violate("a part of a snapshot overtakes the events before it");
  }
  for (const uint64_t hash : chunk.hashes) blocks_.insert({chunk.cache_kind, hash});
  if (!chunk.last) return;
  state_ = State::kExact;
  if (chunk.index > 0) shared_.coverage.Add("snapshots in parts");
  JudgeAt(chunk.event_seq, "caches judged at end markers");
}

void CacheModel::JudgeAt(uint64_t event_seq, const char* coverage) const {
  if (state_ != State::kExact) return;
  const auto& truth = shared_.cache_truth[epoch_];
  const auto found = truth.find(event_seq);
  if (found == truth.end()) return;  // in the middle of what one round did
  shared_.coverage.Add(coverage);
  CacheSum sum;
  for (const auto& [kind, hash] : blocks_) sum.Add(kind, hash);
  if (sum.value() != found->second) shared_.Violate("a router's idea of the cache is wrong");
}

bool CacheModel::KnowsTheLastEvent() const {
  const auto& truth = shared_.cache_truth[epoch_];
  return !follows_ || (!truth.empty() && truth.rbegin()->first == seq_);
}

void CacheModel::JudgeTheEnd() const {
  if (!follows_) return;
  if (state_ != State::kExact) return shared_.Violate("a snapshot never comes to its end");
  if (!KnowsTheLastEvent()) return shared_.Violate("the last events are never told");
  JudgeAt(seq_, "caches judged at rest");
}

}  // namespace quire::sim
