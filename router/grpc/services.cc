#include "router/grpc/services.h"

#include <utility>

namespace quire {
namespace {

void PostTurnEnd(GrpcServices& services) {
  if (std::exchange(services.turn_end->posted, true)) return;
  // The services may have gone by then, and with them what was left to be done.
  services.executor.Post([weak = std::weak_ptr(services.turn_end)] {
    const std::shared_ptr<GrpcServices::TurnEnd> end = weak.lock();
    if (end == nullptr) return;
    end->posted = false;
    for (const auto& one : std::exchange(end->after_turn, {})) one();
    for (const auto& one : std::exchange(end->flushes, {})) one();
  });
}

}  // namespace

void GrpcServices::AfterTurn(std::function<void()> work) {
  turn_end->after_turn.push_back(std::move(work));
  PostTurnEnd(*this);
}

void GrpcServices::Flush(std::function<void()> work) {
  turn_end->flushes.push_back(std::move(work));
  PostTurnEnd(*this);
}

}  // namespace quire
