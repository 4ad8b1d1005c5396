// A world on one thread and virtual time: clock, executors, links between dialers and listeners,
// random numbers, all from one seed. The same seed gives the same run.
//
// One thread. Work runs in order of (due time, sequence number).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"

namespace quire {

class VirtualRng final : public Rng {  // SplitMix64
 public:
  explicit VirtualRng(uint64_t seed) : state_(seed) {}
  uint64_t Next() override;

 private:
  uint64_t state_;
};

class VirtualWorld {
 public:
  explicit VirtualWorld(uint64_t seed);
  ~VirtualWorld();

  Clock& clock();
  Executor& executor();
  Rng& rng() { return rng_; }

  // Accepts streams dialled to `target`: the listener gets the worker's end.
  using Accept = std::function<void(std::unique_ptr<FrameStream>)>;
  void Listen(const std::string& target, Accept accept);
  void StopListening(const std::string& target);
  using BundleSource = std::function<absl::StatusOr<std::string>(const std::string& model_id)>;
  void ServeTextBundle(const std::string& target, BundleSource source);
  // `name` identifies the dialer, for HoldPath.
  std::unique_ptr<Dialer> MakeDialer(const std::string& name = "");

  // One-way delay of every frame; drawn again per frame between the two.
  void SetDelay(Micros min_delay, Micros max_delay);
  // How long after one end closed, or is gone, the other end learns of it: behind the frames that
  // are under way and, where these are held, not before they pass. A new stream may overtake the
  // end of the old one. Without a delay: at once, and frames under way are lost.
  void SetCloseDelay(Micros min_delay, Micros max_delay);
  // Breaks all streams to `target` at once; both ends get UNAVAILABLE.
  void CutLinks(const std::string& target);
  // While held, frames to and from `target` wait; streams stay open.
  void HoldLinks(const std::string& target, bool held);
  // One direction of the links between one dialer and a target: frames that the dialer sent, or
  // those sent to it.
  enum class Way { kToTarget, kFromTarget };
  void HoldPath(const std::string& dialer, const std::string& target, Way way, bool held);

  // Runs until nothing is due before `until`, or `done` returns true. Returns the count of work
  // items run.
  size_t RunUntil(Micros until, const std::function<bool()>& done = nullptr);
  bool Idle() const;

  // Append-only record of what happened; equal traces mean equal runs.
  void Trace(std::string line);
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  struct State;
  VirtualRng rng_;
  std::unique_ptr<State> state_;
  std::vector<std::string> trace_;
};

}  // namespace quire
