#include "router/dispatch/death_ledger.h"

#include <utility>

#include "common/check.h"

namespace quire {

void DeathLedger::Lost(WorkerIndex worker, const std::set<RequestNumber>& requests) {
  if (requests.empty()) return;
  QUIRE_CHECK_MSG(!losses_.contains(worker), "a Hello closes the loss before");
  losses_[worker].requests = requests;
  for (const RequestNumber request : requests) ++counts_[request].suspicions;
}

std::vector<RequestNumber> DeathLedger::CountLoss(Loss& loss) {
  if (loss.counted) return {};
  loss.counted = true;
  for (const RequestNumber request : loss.requests) {
    Count& count = counts_.at(request);
    QUIRE_CHECK(count.suspicions > 0);
    --count.suspicions;
    ++count.deaths;
  }
  return {loss.requests.begin(), loss.requests.end()};
}

std::vector<RequestNumber> DeathLedger::Refused(WorkerIndex worker) {
  const auto it = losses_.find(worker);
  return it == losses_.end() ? std::vector<RequestNumber>() : CountLoss(it->second);
}

std::vector<RequestNumber> DeathLedger::Died(WorkerIndex worker) {
  const auto it = losses_.find(worker);
  if (it == losses_.end()) return {};
  std::vector<RequestNumber> requests = CountLoss(it->second);
  losses_.erase(it);
  return requests;
}

void DeathLedger::Lives(WorkerIndex worker) {
  const auto it = losses_.find(worker);
  if (it == losses_.end()) return;
  const Loss loss = std::move(it->second);
  losses_.erase(it);
  for (const RequestNumber request : loss.requests) {
    Count& count = counts_.at(request);
    uint32_t& part = loss.counted ? count.deaths : count.suspicions;
    QUIRE_CHECK(part > 0);
    --part;
    Drop(request);
  }
}

void DeathLedger::Stuck(const std::set<RequestNumber>& requests) {
  for (const RequestNumber request : requests) ++counts_[request].deaths;
}

void DeathLedger::Forget(RequestNumber request) {
  if (counts_.erase(request) == 0) return;
  for (auto it = losses_.begin(); it != losses_.end();) {
    it->second.requests.erase(request);
    it = it->second.requests.empty() ? losses_.erase(it) : std::next(it);
  }
}

void DeathLedger::Drop(RequestNumber request) {
  const auto it = counts_.find(request);
  if (it != counts_.end() && it->second.total() == 0) counts_.erase(it);
}

DeathLedger::Count DeathLedger::Of(RequestNumber request) const {
  const auto it = counts_.find(request);
  return it == counts_.end() ? Count() : it->second;
}

}  // namespace quire
