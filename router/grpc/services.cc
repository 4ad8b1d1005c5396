#include "router/grpc/services.h"

#include <utility>

namespace quire {
namespace {

void PostTurnEnd(GrpcServices& services) {
  if (std::exchange(services.turn_end.posted, true)) return;
  services.executor.Post([&services] {
    GrpcServices::TurnEnd& end = services.turn_end;
    end.posted = false;
    for (const auto& one : std::exchange(end.after_turn, {})) one();
    for (const auto& one : std::exchange(end.flushes, {})) one();
  });
}

}  // namespace

void GrpcServices::AfterTurn(std::function<void()> work) {
  turn_end.after_turn.push_back(std::move(work));
  PostTurnEnd(*this);
}

void GrpcServices::Flush(std::function<void()> work) {
  turn_end.flushes.push_back(std::move(work));
  PostTurnEnd(*this);
}

}  // namespace quire
