// What a pool offers now, with what this router has on the way to it.
#include "common/planted_bug.h"
#include "router/dispatch/dispatcher.h"

namespace quire {

Room Dispatcher::RoomFor(const std::string& model_id, const RoomNeed& need) const {
  RoomSearch search(need, options_.limits.max_prefill_ahead);
  fleet_.Look(model_id, Now(), [&](WorkerView& worker) {
    AddUnseen(worker);
    return !search.See(worker);
  });
  const Room room = search.found();
  // Who waits here already goes first.
  const bool before = line_.Blocked(model_id) && !QUIRE_BUG(carry_on_not_ahead);
  return room == Room::kSome && before ? Room::kFull : room;
}

// The ready and trusted workers of a model, with what is on its way to them.
FleetView Dispatcher::ViewOf(const std::string& model_id) const {
  FleetView view = fleet_.View(model_id, Now());
  for (WorkerView& worker : view.workers) AddUnseen(worker);
  return view;
}

void Dispatcher::AddUnseen(WorkerView& worker) const {
  const Link& link = *at_[worker.worker.value()].link;
  worker.unseen_submits = link.UnseenSubmits();
  worker.unseen_tokens = link.UnseenTokens();
}

}  // namespace quire
