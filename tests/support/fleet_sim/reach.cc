#include "tests/support/fleet_sim/reach.h"

#include <algorithm>

namespace quire::sim {
namespace {

// Of a process: well below the silence after which it is given up.
constexpr Micros kLongestMoment = kMicrosPerSecond;

}  // namespace

void Reach::Break(Pair& pair, Micros now) {
  if (Known(pair, now)) {
    pair.known_until = pair.state == State::kHeldUp ? pair.since : now;
    pair.known_as = pair.model;
  }
  pair.state = State::kGone;
  pair.since = now;
  pair.there_for = 0;
}

void Reach::See(size_t router, size_t worker, State state, const std::string& model, Micros now) {
  Pair& pair = pairs_[{router, worker}];
  if (pair.state != State::kGone && pair.model != model) Break(pair, now);
  if (pair.state == State::kHeldUp && now - pair.since > kLongestMoment) Break(pair, now);
  // Who stands still and is gone already comes back as one that was never there.
  if (pair.state == State::kGone && state == State::kHeldUp) state = State::kGone;
  if (state == pair.state) return;
  if (state == State::kGone) return Break(pair, now);
  pair.there_for = ThereFor(pair, now);
  pair.state = state;
  pair.since = now;
  pair.model = model;
}

void Reach::BreakWorker(size_t worker, Micros now) {
  for (auto& [key, pair] : pairs_) {
    if (key.second == worker) Break(pair, now);
  }
}

void Reach::LeapRouter(size_t router, Micros by, Micros now) {
  for (auto& [key, pair] : pairs_) {
    if (key.first != router) continue;
    Break(pair, now);
    if (pair.known_until) *pair.known_until -= by;
  }
}

bool Reach::MayLack(size_t router, const std::string& model, Micros now) const {
  return std::none_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    const auto& [key, pair] = entry;
    if (key.first != router) return false;
    if (pair.model == model && Known(pair, now)) return true;
    return pair.known_as == model && pair.known_until && now - *pair.known_until < wait_;
  });
}

}  // namespace quire::sim
