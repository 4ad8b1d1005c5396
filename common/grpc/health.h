// grpc.health.v1.Health: whether services would serve, for one, for all, or as a watch.
//
// Owner: the server; event loop only.
//  1. A watcher gets the state at once, then each change that it has time to take.
//  2. A caller needs no key: its metadata is not kept, its request is short and must come soon, and
//     few of a connection's calls may watch.
#pragma once

#include <set>
#include <string>

#include "common/grpc/methods.h"

namespace quire {

inline constexpr uint32_t kMaxWatchesPerConnection = 16;
inline constexpr size_t kMaxHealthQuestionBytes = 1024;
inline constexpr Micros kHealthQuestionTimeout = 10 * kMicrosPerSecond;

class HealthService {
 public:
  explicit HealthService(const GrpcMethods& methods) : methods_(methods) {}

  // The state of the server, and of each service that has its own.
  void Set(bool serving);
  bool serving() const { return serving_; }
  bool Knows(const std::string& service) const;
  class Watcher;  // from its request until its call has ended
  void Watch(Watcher& watcher) { watchers_.insert(&watcher); }
  void Forget(Watcher& watcher) { watchers_.erase(&watcher); }

 private:
  const GrpcMethods& methods_;
  bool serving_ = false;
  std::set<Watcher*> watchers_;
};

// `health` outlives the methods.
void AddHealth(HealthService& health, GrpcMethods& methods);

}  // namespace quire
