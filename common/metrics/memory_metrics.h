// What an account of memory holds and which charges it refused, for Prometheus.
#pragma once

#include <memory>
#include <string>

#include "common/memory_account.h"
#include "common/metrics/metrics.h"

namespace quire {

struct MemoryMetricNames {
  std::string prefix;  // "quire_router_client_memory_"
  std::string who;     // "clients", whose charges are refused
  std::string holder;  // "the router", which holds the memory
};

// Shows the account, which has no parent.
void AddMemoryMetrics(std::shared_ptr<const MemoryAccount> account, const MemoryMetricNames& names,
                      Metrics& metrics);

}  // namespace quire
