// Checks that the data of a call leaves for its router.
//
// Owner: the call's handler; event loop only.
//  1. Where too little leaves for kWriteBlockedTurns, that is counted and `on_blocked` runs. The
//     unit is turns of a timer, so that a late loop is not mistaken for a slow router.
#pragma once

#include <functional>

#include "common/blocked_write.h"
#include "common/grpc/call.h"
#include "common/runtime/timer.h"

namespace quire {

inline constexpr Micros kWriteTurn = kMicrosPerSecond;

class BlockedWrites {
 public:
  // `call` outlives this object, and so does the executor of its host, which may already be gone.
  BlockedWrites(GrpcCall& call, std::function<void()> on_blocked);
  BlockedWrites(const BlockedWrites&) = delete;

  void Sent(size_t bytes);  // written to the call, just now
  void Stop() { timer_.Stop(); }

 private:
  void WatchLater();
  void OnTurn();

  GrpcCall& call_;
  const std::function<void()> on_blocked_;
  uint64_t sent_ = 0;
  uint64_t left_ = 0;  // how much of that had left at the last turn
  int blocked_turns_ = 0;
  Timer timer_;
};

}  // namespace quire
