// Consistent hash: a session stays with its worker as long as that worker is there; requests
// without a session are placed by their beginning.
#include <algorithm>

#include "common/check.h"
#include "router/routing/policy.h"

namespace quire {
namespace {

RouteChoice ChooseConsistentHash(std::span<const WorkerView> candidates, const RouteQuery& query) {
  QUIRE_CHECK(!candidates.empty());
  const bool session = !query.session.empty();
  const uint64_t key = session ? RendezvousKey(query.session) : query.affinity;
  const auto best = std::max_element(
      candidates.begin(), candidates.end(), [key](const WorkerView& a, const WorkerView& b) {
        return RendezvousWeight(key, a.worker_id) < RendezvousWeight(key, b.worker_id);
      });
  return {best->worker, session ? "session" : "rendezvous"};
}

}  // namespace

Policy ConsistentHash() {
  return {"consistent-hash",
          "keeps a session with its worker, and requests that begin alike together.",
          {"rendezvous", "session"},
          &ChooseConsistentHash};
}

}  // namespace quire
