// grpc.health.v1.Health: whether services would serve, asked once, of all, or watched.
//
// Owner: the server; event loop only.
//  1. A watcher is told of the state at once, then of each change that it has time to take.
//  2. Who asks needs no key: its metadata is not kept, its question is short and comes soon, and
//  few
//     of a connection's calls may watch.
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

  // Of the server, and of each service that answers questions of its own.
  void Set(bool serving);
  bool serving() const { return serving_; }
  bool Knows(const std::string& service) const;
  class Watcher;  // from its question until its call has ended
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
