// One client of the fleet: asks, reads, and goes on where it stood when its router is gone or tells
// it to come back. Says what it finds wrong with its answer.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "router/pipeline/pipeline.h"
#include "tests/support/fleet_sim/fleet_sim.h"

namespace quire::sim {

// What a client needs of the world around it.
class ClientHost {
 public:
  virtual ~ClientHost() = default;
  // nullptr: the router is down, or stopped, and serves no client.
  virtual Pipeline* Serving(size_t router) = 0;
  virtual void Asked(size_t router, RequestId request, bool streaming) = 0;
  virtual void Told(size_t router, RequestId request, uint32_t choice, uint64_t count) = 0;
  // It takes what it has, up to `count`.
  virtual void Took(size_t router, RequestId request, uint32_t choice, uint64_t count) = 0;
  // Whether waiting can help who needs this model.
  virtual bool MayBeServed(const std::string& model_id) const = 0;
  // Whether the faults leave this router no worker that could go on with an answer of this model.
  virtual bool MayLackWorkers(size_t router, const std::string& model_id) = 0;
  // Whether this router may say that a feature is not served; of any model when it is empty.
  virtual bool MayLackFeatures(size_t router, const std::string& model_id) const = 0;
  virtual size_t router_count() const = 0;
  virtual Micros Now() = 0;
  virtual void At(Micros after, std::function<void()> work) = 0;
  virtual void Trace(const std::string& what) = 0;
  virtual void Violate(const std::string& what) = 0;
  virtual void Meet(const std::string& what, uint64_t count) = 0;
};

class FleetSimClient final : public ResponseSink {
 public:
  FleetSimClient(ClientHost& fleet, size_t index, const FleetClient& plan)
      : fleet_(fleet),
        index_(index),
        plan_(plan),
        choices(static_cast<size_t>(plan.ask.sampling.n)) {}

  void Ask();
  void Cancel();
  void RouterDied(size_t router);
  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;
  // That began the answer; empty: none did.
  const std::string& model_id() const { return resume_.model_id; }
  // Whether a request of it is with this router since before `now`: what is refused is so at once.
  bool AsksAt(size_t router, Micros now) const {
    return asking_ && !over && router_ == router && asked_at_ < now;
  }

 private:
  void LeftBehind(const std::string& how);
  void Say(const std::string& what);
  void Violate(const std::string& what);
  void AskAgain(Micros after);
  void Unavailable(const ApiError& error);
  bool Limited() const;
  bool AllEnded() const {
    return std::all_of(choices.begin(), choices.end(),
                       [](const FleetAnswer& choice) { return !choice.finish_reason.empty(); });
  }

  ClientHost& fleet_;
  const size_t index_;
  const FleetClient& plan_;

 public:
  std::vector<FleetAnswer> choices;
  std::vector<TokenLogprob> prompt_logprobs;
  bool over = false;
  bool cancelled = false;
  bool late = false;
  bool suspect = false;
  bool finished = false;
  bool left_behind = false;  // by an update: no worker serves any more what it needs
  bool resumed = false;
  int asks = 0;

 private:
  bool asking_ = false;  // a request of it is with a router
  bool started_ = false;
  bool ever_started_ = false;
  std::vector<bool> ended_before_;  // by choice: it had the end of it when it asked
  size_t router_ = 0;
  Micros asked_at_ = 0;
  RequestId id_ = 0;
  ResumeRequest resume_;
};

}  // namespace quire::sim
