// What happens in one simulated life of a worker: its shape, its routers, their requests, the
// faults. Everything is drawn from the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/wire/values.h"
#include "tests/support/tag_adapters.h"
#include "worker/engine/engine.h"

namespace quire::sim {

inline constexpr uint64_t kSalts = 3;  // a request's salt is its seed modulo this; 0 is none

// The salt of the tags that a request leaves.
inline uint64_t TagSaltOf(const Submit& submit) {
  return (submit.sampling.seed % kSalts) ^ test::TagAdapterSalt(submit.adapter);
}

struct RequestPlan {
  int router = 0;
  Micros starts_at = 0;
  Submit submit;               // key, submit number and remaining time are the router's to fill in
  Micros deadline_after = -1;  // from its start; −1: none
  bool bad = false;            // to be refused whatever happens
  bool nan = false;            // the model fails it

  // The client, as its router relays it.
  Micros grant_lag = 0;     // from a token to the Grant that it causes
  uint64_t grant_step = 1;  // outputs beyond those taken
  int64_t stalls_at = -1;   // takes nothing beyond so many tokens; −1: takes all
  Micros cancels_after = -1;
  bool cancels_one_choice = false;  // the first
  int64_t finishes_at = -1;         // choice 0 meets a stop string with so many tokens
  Micros retries_after = -1;        // the router gives the attempt up and sends a newer one
  bool repeats_live = false;        // sends its Submit a second time at once
  bool repeats_ended = false;       // and once more when it is over
};

struct FaultPlan {
  enum class Kind : uint8_t {
    kCut,         // a router's stream breaks; it attaches again
    kFence,       // a router attaches again while its older Attach stands
    kOldHello,    // somebody attaches with a number that has been used
    kSilence,     // a router stops, sending and reading, and attaches again when it wakes
    kSlowStep,    // the step in flight takes longer
    kFailStep,    // the step in flight comes back without numbers
    kFreeze,      // the engine does nothing: a step that never ends, until it does
    kCrash,       // the worker is killed and starts again, with a new epoch
    kLoseDevice,  // what is in flight never ends, and nothing that was computed is kept
  };
  static constexpr int kKinds = 8;  // drawn alike; devices are drawn for themselves
  Kind kind = Kind::kCut;
  int router = 0;
  Micros at = 0;
  Micros lasts = 0;
  int looks = 0;  // for a lost device until it is back
};

// What a router wants to know of the worker's cache.
struct FollowPlan {
  bool wants_events = true;
  Micros asks_after = 0;          // from a Hello, or from losing track, to a request for a snapshot
  std::vector<Micros> asks_also;  // whatever it knows
};

struct Scenario {
  uint64_t seed = 0;
  EngineOptions engine;
  int max_in_flight = 1;
  uint64_t wrong_drafts = 0;       // with engine.max_drafts: one guess in so many; 0: it looks up
  int64_t draft_pages = 0;         // of a draft model, which is the model itself; 0: there is none
  bool other_draft_model = false;  // it is another model
  int routers = 1;
  std::vector<FollowPlan> follows;  // by router
  size_t max_unsent_hashes = 0;     // of events, by router
  Micros compile_us = 0;            // that a constraint takes
  Micros step_base_us = 0;
  Micros step_token_us = 0;
  std::vector<RequestPlan> requests;
  std::vector<FaultPlan> faults;
  std::vector<Micros> adapter_moves;  // when adapters that nothing uses may change their slots
  Micros drains_at = -1;              // −1: never
  Micros drain_grace = 0;
};

Scenario DrawScenario(uint64_t seed);

}  // namespace quire::sim
