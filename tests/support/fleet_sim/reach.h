// Which workers a router can have, by what the faults have left of processes and network: the
// judge's own view, whatever the router believes.
//
// One per life of a fleet, on the world's thread; told the state of the world after every event.
//  1. A router can have a worker while both run and nothing between them is held, broken or
//  refused.
//  2. One that it could have for so long without a break is known to it, until the next break.
//  3. For want of a worker an answer that has begun may end only when none that could go on with it
//     was known within the wait that the router promises.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/runtime/runtime.h"

namespace quire::sim {

class Reach {
 public:
  enum class State {
    kGone,
    kHeldUp,  // one of the two processes stands still: for a moment only, or it is as gone
    kThere,
  };
  // `finds_within`: how long a router may take to find a worker that is there.
  Reach(Micros finds_within, Micros wait) : finds_within_(finds_within), wait_(wait) {}

  // As it is now; `model` is what the worker could go on with, empty: nothing.
  void See(size_t router, size_t worker, State state, const std::string& model, Micros now);
  // Something happened to them that leaves no trace in their state, as when their links break.
  void BreakWorker(size_t worker, Micros now);
  // The clock of a router leapt forward: by it more of its waits is over.
  void LeapRouter(size_t router, Micros by, Micros now);
  // Whether this router may say that no worker can go on with an answer of this model.
  bool MayLack(size_t router, const std::string& model, Micros now) const;

 private:
  struct Pair {
    State state = State::kGone;
    std::string model;
    Micros since = 0;      // of `state`
    Micros there_for = 0;  // before `since`, without a break
    std::optional<Micros> known_until;
    std::string known_as;  // its model then
  };
  Micros ThereFor(const Pair& pair, Micros now) const {
    return pair.there_for + (pair.state == State::kThere ? now - pair.since : 0);
  }
  bool Known(const Pair& pair, Micros now) const {
    return pair.state != State::kGone && ThereFor(pair, now) >= finds_within_;
  }
  void Break(Pair& pair, Micros now);

  const Micros finds_within_;
  const Micros wait_;
  std::map<std::pair<size_t, size_t>, Pair> pairs_;  // by router and worker
};

}  // namespace quire::sim
