// The workers of a dispatcher: each has a link as long as it is listed here. Also what a pool
// offers now, including what this router has in flight to it.
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "router/dispatch/dispatcher.h"

namespace quire {

absl::Status Dispatcher::AddWorker(const std::string& target) {
  QUIRE_ASSIGN_OR_RETURN(const WorkerIndex worker, fleet_.AddWorker(target));
  if (worker.value() == at_.size()) at_.emplace_back();
  std::unique_ptr<Link>& place = at_.at(worker.value()).link;
  QUIRE_CHECK_MSG(place == nullptr, "a worker that went left its place empty");
  LinkOptions link = options_.link;
  link.target = target;
  link.worker = worker;
  link.router = options_.instance;
  link.wants_events = options_.policy->wants_caches;
  LinkListener& self = *this;
  place = std::make_unique<Link>(std::move(link), dialer_, executor_, rng_, self);
  place->Start();
  return absl::OkStatus();
}

void Dispatcher::RemoveWorker(WorkerIndex worker) {
  AtWorker& at = at_.at(worker.value());
  QUIRE_CHECK_MSG(at.running.empty(), "a worker with attempts stays");
  if (at.move_timer != 0) executor_.Cancel(at.move_timer);
  at = AtWorker();
  placement_.index().Lost(worker);
  ledger_.Lives(worker);  // nothing will show any more whether it died
  if (fleet_.worker(worker).attached) fleet_.Detached(worker, "named no more", Now());
  fleet_.RemoveWorker(worker);
  // Another worker may get its index.
  for (auto& [number, live] : live_) std::erase(live->excluded, worker);
  events_.Add(FleetChanged{worker});
  events_.Wake();
}

Room Dispatcher::RoomFor(const std::string& model_id, const RoomNeed& need) const {
  RoomSearch search(need, options_.limits.max_prefill_ahead);
  fleet_.Look(model_id, Now(), [&search](const WorkerView& worker) { return !search.See(worker); });
  const Room room = search.found();
  // Requests that already wait here go first.
  const bool before = line_.Blocked(model_id) && !QUIRE_BUG(carry_on_not_ahead);
  return room == Room::kSome && before ? Room::kFull : room;
}

void Dispatcher::NoteUnseen(WorkerIndex worker) {
  const Link& link = *at_[worker.value()].link;
  fleet_.SetUnseen(worker, link.UnseenSubmits(), link.UnseenTokens());
}

}  // namespace quire
