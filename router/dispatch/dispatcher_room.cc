// What a pool offers now, with what this router has on the way to it.
#include "common/planted_bug.h"
#include "router/dispatch/dispatcher.h"

namespace quire {

Room Dispatcher::RoomFor(const std::string& model_id, const RoomNeed& need) const {
  RoomSearch search(need, options_.limits.max_prefill_ahead);
  fleet_.Look(model_id, Now(), [&search](const WorkerView& worker) { return !search.See(worker); });
  const Room room = search.found();
  // Who waits here already goes first.
  const bool before = line_.Blocked(model_id) && !QUIRE_BUG(carry_on_not_ahead);
  return room == Room::kSome && before ? Room::kFull : room;
}

void Dispatcher::NoteUnseen(WorkerIndex worker) {
  const Link& link = *at_[worker.value()].link;
  fleet_.SetUnseen(worker, link.UnseenSubmits(), link.UnseenTokens());
}

}  // namespace quire
