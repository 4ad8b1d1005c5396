#include "worker/rpc/blocked_writes.h"

#include <utility>

namespace quire {

BlockedWrites::BlockedWrites(GrpcCall& call, std::function<void()> on_blocked)
    : call_(call), on_blocked_(std::move(on_blocked)), timer_(call.host().executor) {}

// A timer that already runs checks this, too: data that leaves at once needs no timer of its own.
void BlockedWrites::Sent(size_t bytes) {
  sent_ += bytes;
  if (!timer_.running()) WatchLater();
}

void BlockedWrites::WatchLater() {
  timer_.SetIn(kWriteTurn, [this] { OnTurn(); });
}

void BlockedWrites::OnTurn() {
  const uint64_t waiting = call_.queued();
  const uint64_t left = waiting < sent_ ? sent_ - waiting : 0;
  const bool moves = waiting == 0 || left >= left_ + kWriteStepBytes;
  if (moves) left_ = left;
  blocked_turns_ = moves ? 0 : blocked_turns_ + 1;
  if (blocked_turns_ > kWriteBlockedTurns) {
    call_.host().counters.write_timeouts.Add();
    return on_blocked_();
  }
  if (waiting > 0) WatchLater();
}

}  // namespace quire
