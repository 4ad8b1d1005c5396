// What the dispatcher sees of a pool before it places anything.
#include "router/dispatch/dispatcher.h"

namespace quire {

Room Dispatcher::RoomFor(const std::string& model_id, const RoomNeed& need) const {
  return RoomIn(ViewOf(model_id), need, options_.limits.max_prefill_ahead);
}

// The ready workers of a model, with what is on its way to them.
FleetView Dispatcher::ViewOf(const std::string& model_id) const {
  FleetView view = fleet_.View(model_id);
  for (WorkerView& worker : view.workers) {
    const Link& link = *links_[worker.worker.value()];
    worker.unseen_submits = link.UnseenSubmits();
    worker.unseen_tokens = link.UnseenTokens();
  }
  return view;
}

}  // namespace quire
