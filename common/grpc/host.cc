#include "common/grpc/host.h"

#include <memory>
#include <utility>

namespace quire {
namespace {

using TurnEnd = GrpcHost::TurnEnd;

void PostTurnEnd(Executor& executor, const std::shared_ptr<TurnEnd>& turn_end) {
  if (std::exchange(turn_end->posted, true)) return;
  // The host may be gone by then, and the remaining work with it.
  executor.Post([&executor, weak = std::weak_ptr(turn_end)] {
    const std::shared_ptr<TurnEnd> end = weak.lock();
    if (end == nullptr) return;
    for (const auto& one : std::exchange(end->after_turn, {})) one();
    // Output that calls have just written leaves in this turn: it needs no further one.
    end->posted = false;
    const auto flushes = std::exchange(end->flushes, {});
    if (!end->after_turn.empty()) PostTurnEnd(executor, end);
    for (const auto& one : flushes) one();
  });
}

}  // namespace

void GrpcHost::AfterTurn(std::function<void()> work) {
  turn_end->after_turn.push_back(std::move(work));
  PostTurnEnd(executor, turn_end);
}

void GrpcHost::Flush(std::function<void()> work) {
  turn_end->flushes.push_back(std::move(work));
  PostTurnEnd(executor, turn_end);
}

}  // namespace quire
