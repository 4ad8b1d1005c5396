#include "router/fleet/worker_health.h"

#include <algorithm>

#include "common/planted_bug.h"

namespace quire {

DeathNews WorkerHealth::Greeted(Epoch epoch, Micros now) {
  linked_ = true;
  if (!epoch_) {
    epoch_ = epoch;
    alive_since_ = now;
    return DeathNews::kNothing;
  }
  if (*epoch_ == epoch || QUIRE_BUG(stale_epoch_accepted)) {
    if (!refused_) return DeathNews::kLives;
    refused_ = false;
    deaths_ -= std::min(deaths_, 1u);
    ejected_until_ = now;
    return DeathNews::kTakenBack;
  }
  const bool died = !draining_ && !refused_ && !stuck_;
  if (died) Died(now);
  epoch_ = epoch;
  alive_since_ = now;
  returned_at_ = now;
  draining_ = stuck_ = refused_ = false;
  LeaveOut(now);
  return died ? DeathNews::kDied : DeathNews::kNothing;
}

void WorkerHealth::LinkLost(Micros now) {
  if (linked_ && now - alive_since_ >= options_.forgiven_after) deaths_ = 0;
  linked_ = false;
}

DeathNews WorkerHealth::Refused(Micros now) {
  if (!epoch_ || linked_ || draining_ || refused_ || stuck_) return DeathNews::kNothing;
  refused_ = true;
  Died(now);
  return DeathNews::kDied;
}

DeathNews WorkerHealth::StepSeen(bool stuck, Micros now) {
  const bool news = stuck && !stuck_;
  stuck_ = stuck;
  if (!news) return DeathNews::kNothing;
  Died(now);
  LeaveOut(now);
  return DeathNews::kDied;
}

void WorkerHealth::Died(Micros) { deaths_ = std::min(deaths_ + 1, 1000u); }

void WorkerHealth::LeaveOut(Micros now) {
  if (deaths_ < 2) return;
  const uint32_t doublings = std::min(deaths_ - 2, 30u);
  const Micros wished = options_.backoff_min << doublings;
  ejected_until_ = now + std::min(options_.backoff_max, wished);
}

std::optional<uint32_t> WorkerHealth::SlowStartCap(Micros now, uint32_t rows) const {
  if (!returned_at_) return std::nullopt;
  const Micros since = now - *returned_at_;
  if (since >= options_.slow_start) return std::nullopt;
  const uint64_t share = uint64_t{rows} * static_cast<uint64_t>(std::max<Micros>(0, since)) /
                         static_cast<uint64_t>(options_.slow_start);
  return static_cast<uint32_t>(1 + share);
}

}  // namespace quire
