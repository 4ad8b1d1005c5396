// The live requests of this worker, and the latest ended ones.
//
// Owner: Engine, on its thread. Invariants:
// 1. A request has at most one live attempt; its key is (router instance, request number).
// 2. A request is kept until no step in flight names one of its choices, also after its end.
// 3. Iteration is in order of (router, request).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/ids.h"
#include "common/prefetch.h"
#include "common/slab.h"
#include "common/wire/values.h"
#include "worker/core/engine_io.h"
#include "worker/draft/draft_history.h"
#include "worker/scheduler/sequence.h"

namespace quire {

// Ended attempts that are remembered, so that a late or repeated Submit of one is refused.
inline constexpr size_t kRememberedAttempts = 4096;

struct Request;
struct Beams;

// Its first fields follow those of Sequence that every step reads, and hold what an output needs of
// the request, so that a token reads nothing else: one cache line more.
struct Choice : Sequence {
  RouterInstance router;
  AttemptKey key;
  uint64_t end_filter = ~uint64_t{0};  // of end_ids
  int64_t generated = 0;               // by this attempt
  uint32_t index = 0;
  int32_t logprobs = 0;        // as in SamplingParams
  Request* request = nullptr;  // null: the idle probe
  int32_t min_tokens = 0;      // as in SamplingParams
  bool ended = false;
  bool is_beam = false;  // a row of a beam search, not one of the request's choices
  // With a prediction: drafts that the current step took and dropped, until an output reports them.
  uint8_t accepted_prediction = 0, rejected_prediction = 0;
  int64_t discarded = 0;                    // generated tokens past the end
  int64_t stalled_since_us = kNeverMicros;  // when its window was used up
  DraftHistory drafted;
  bool forced = false;                 // its drafts are what its grammar forces
  uint32_t draft_tokens = 0;           // drafted for it by this attempt
  uint32_t accepted_draft_tokens = 0;  // of these, those that were its next outputs

  // Prefetches what one of its tokens needs besides what its step touches.
  void PrefetchToken() const { PrefetchToWrite(&router); }
};

using OwnedChoice = Slab<Choice>::Owned;

struct Request {
  Request();
  ~Request();

  RouterInstance router;
  // Its choices hold the prompt, each at the head of its tokens: of prompt_ids the length remains.
  Submit submit;
  uint32_t prompt_tokens = 0;
  int64_t deadline_us = kNeverMicros;
  CacheIdentity cache;
  int32_t adapter_slot = -1;  // of submit.adapter; −1: it has none
  std::vector<OwnedChoice> choices;
  size_t open_choices = 0;
  bool told_admitted = false;
  // The times at which it reached each phase; never, until it has.
  int64_t accepted_us = kNeverMicros;
  int64_t launched_us = kNeverMicros;     // the first step that names it
  int64_t first_token_us = kNeverMicros;  // its first sample
  PrefillChunks prefill;
  // Of a constrained request: its grammar, or what it waits for, without pages (SubmitCommand).
  std::shared_ptr<const grammar::Grammar> grammar;
  uint64_t compiling = 0;
  ConstraintUse constraint;
  bool counted = false;          // as accepted
  std::unique_ptr<Beams> beams;  // of a beam search; the choices are then its answers

  WireKey key() const { return {router, submit.key.request}; }
  bool Admitted() const;       // one of its choices has been in a batch
  bool StepsInFlight() const;  // a step in flight names one of its choices
  AttemptUsage Usage() const;
  // Computed at its end. Phases that it never reached are 0.
  AttemptRecord Record(EndReason reason, int64_t now_us) const;
};

class RequestTable {
 public:
  using Map = std::map<WireKey, std::unique_ptr<Request>>;

  Request& Add(std::unique_ptr<Request> request);
  // The live attempt, or null.
  Request* Find(RouterInstance router, const AttemptKey& key);
  Request* FindAnyAttempt(const WireKey& key);
  // The attempt number of the request's last end that is remembered.
  std::optional<Attempt> EndedAttempt(const WireKey& key) const;

  // The request has ended: all its choices have. It stays in memory while steps in flight name it.
  void Retire(Request& request);
  // The request is refused after all: nothing of it remains. Requires: no step has named it.
  void Forget(Request& request);
  // Frees ended requests that no step names any more.
  void Sweep();

  // Whether a request in memory has an adapter in this slot: a step may name it.
  bool UsesAdapterSlot(int slot) const;

  Map& live() { return live_; }
  const Map& live() const { return live_; }
  bool Empty() const { return live_.empty() && retired_.empty(); }

  void CheckInvariants() const;

 private:
  Map live_;
  std::vector<std::unique_ptr<Request>> retired_;
  std::map<WireKey, Attempt> ended_;
  std::deque<WireKey> ended_order_;
};

}  // namespace quire
