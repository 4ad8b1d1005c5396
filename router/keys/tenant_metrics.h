// Counters for each tenant, within a fixed number of labels.
//
// Owner: the key ring. Know on the event loop, Count on any thread.
//
// Invariants:
// 1. At most kMaxTenantLabels names ever become labels, those of the key file in its order; all
//    other tenants count as "other". No client can make a label.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/sync.h"

namespace quire {

inline constexpr size_t kMaxTenantLabels = 100;

class TenantMetrics {
 public:
  TenantMetrics(Metrics& metrics, std::string prefix)
      : metrics_(metrics), prefix_(std::move(prefix)) {}
  // The tenants of a key file that is now in force.
  void Know(const std::vector<std::string>& tenants);
  // A request of that tenant came in.
  void Count(std::string_view tenant);

 private:
  Counter& Add(const std::string& label);

  Metrics& metrics_;
  const std::string prefix_;
  Mutex mutex_;
  std::map<std::string, Counter*, std::less<>> counters_ ABSL_GUARDED_BY(mutex_);
  Counter* other_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace quire
