// Which models of this machine are loaded, which shall be, and which give way: the rules of
// `quire serve` with several models.
//
// Owner: LoadingPipeline, on the router's executor. A pure state machine: no clock, no I/O; time is
// an argument. A request waits for its model (Wait), uses it (Use) and is done with it (Done).
//  1. A model that somebody uses is never unloaded, nor is one that was loaded for requests which
//     have not begun yet.
//  2. At most one model is being loaded or unloaded at a time, in the order in which they were
//     wanted; at most max_loaded are loaded.
//  3. Who gives way is idle: the one used least recently, models that shall stay last.
//  4. A model that has waited for kTurnAfter goes before new requests of a loaded one: those wait
//     too, so that a busy model cannot keep another out without end.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/serve/lines.h"

namespace quire {

struct ShelfLimits {
  uint32_t max_loaded = 3;
  Micros keep_alive = 300 * kMicrosPerSecond;  // of an idle model; < 0: without end
  bool keep_alive_is_given = false;            // also for models that `quire serve` keeps
};

class ModelShelf {
 public:
  static constexpr Micros kTurnAfter = 5 * kMicrosPerSecond;

  struct Model {
    serve::ModelNews news;
    uint32_t waiting = 0;  // requests that have not begun
    uint32_t using_it = 0;
    bool fresh = false;  // loaded, and none of those that waited has begun
    bool wanted = false;
    Micros wanted_since = 0;
    Micros used_at = 0;
    std::optional<Micros> keep_alive;  // as a client said last, until it is unloaded
    bool leaves = false;               // it is to be unloaded once it is idle
  };

  explicit ModelShelf(const ShelfLimits& limits) : limits_(limits) {}

  // False: one model more than kMaxModels, which is left out.
  bool Heard(const serve::ModelNews& news, Micros now);
  const Model* Find(std::string_view name) const;
  const std::map<std::string, Model, std::less<>>& models() const { return models_; }

  // The model is to be loaded.
  void Want(std::string_view name, Micros now);
  // One request more, or less, waits for it.
  void Wait(std::string_view name, Micros now);
  void StopWaiting(std::string_view name);
  // Whether a request that waits may begin now.
  bool MayBegin(std::string_view name, Micros now) const;
  void Use(std::string_view name);
  void Done(std::string_view name, Micros now);

  void KeepAlive(std::string_view name, Micros time, Micros now);
  // False: somebody uses it.
  bool Unload(std::string_view name);

  // What is to be done now; what it says is under way from then on.
  std::optional<serve::Order> Next(Micros now);
  // When, after now, Next may have more to say although nothing else happens.
  std::optional<Micros> NextExpiry(Micros now) const;
  // When the model is unloaded if no request comes; empty: never, or it is in use.
  std::optional<Micros> Until(const Model& model) const;
  size_t loaded() const;
  bool AnyReady() const;
  void CheckInvariants() const;

 private:
  Model& Get(std::string_view name);
  Micros KeepAliveOf(const Model& model) const;
  bool UnderWay() const;
  Model* WhoGivesWay(std::string_view for_model, Micros now);
  static serve::Order Say(serve::OrderKind kind, Model& model);

  const ShelfLimits limits_;
  std::map<std::string, Model, std::less<>> models_;
  std::deque<std::string> wanted_;  // in order
};

}  // namespace quire
