// Under which requests workers died: what tells a poisonous request from one that was unlucky.
//
// Owner: the dispatcher. Pure values, keyed by live requests and workers.
//  1. A lost link is a loss that is open: it counts as a suspicion against the requests that ran
//     there until the worker's next word says whether its epoch died (a death) or lives (nothing).
//  2. A death that was told by a refused connection stays open: it is taken back if that epoch
//     greets again.
//  3. A worker has at most one open loss, since each Hello closes it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/ids.h"
#include "router/core/limits.h"

namespace quire {

class DeathLedger {
 public:
  struct Count {
    uint32_t deaths = 0;
    uint32_t suspicions = 0;  // of losses that are open and not known to be deaths
    uint32_t total() const { return deaths + suspicions; }
  };

  // The link to this worker was lost while these requests had an attempt there.
  void Lost(WorkerIndex worker, const std::set<RequestNumber>& requests);
  // The process of the open loss is gone; its epoch may still prove to live. Returns whose count of
  // deaths grew.
  std::vector<RequestNumber> Refused(WorkerIndex worker);
  // It greeted: with a new epoch, so that the loss was a death, or with the same, so that it was
  // none. Closes the loss; returns whose count of deaths grew.
  std::vector<RequestNumber> Died(WorkerIndex worker);
  void Lives(WorkerIndex worker);
  // A death without a loss: a step that is stuck.
  void Stuck(const std::set<RequestNumber>& requests);
  void Forget(RequestNumber request);  // it has ended

  Count Of(RequestNumber request) const;
  bool empty() const { return counts_.empty() && losses_.empty(); }

 private:
  struct Loss {
    std::set<RequestNumber> requests;
    bool counted = false;  // as a death, by a refused connection
  };
  std::vector<RequestNumber> CountLoss(Loss& loss);
  void Drop(RequestNumber request);

  std::map<WorkerIndex, Loss> losses_;
  std::map<RequestNumber, Count> counts_;  // none is zero
};

}  // namespace quire
