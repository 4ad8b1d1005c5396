// The router's account of the memory that its clients make it hold: one for the process, whose
// limit follows the machine or the pod unless a flag gives it, and the limits of the accounts
// below.
//
// Owner: main; the accounts are shared with what holds memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/memory_account.h"
#include "common/metrics/metrics.h"
#include "common/runtime/asio_executor.h"
#include "router/config.h"

namespace quire {

struct ClientMemory {
  std::shared_ptr<MemoryAccount> process;
  size_t tenant_bytes = 0;      // limit of one tenant's account
  size_t connection_bytes = 0;  // limit of one connection's account
};

// `usable_bytes`: what the process may still allocate; 0 where nothing says it. A quarter of that
// is for clients where no flag says otherwise, of which one tenant has at most a half and one
// connection a quarter.
ClientMemory MakeClientMemory(const RouterConfig& config, int64_t usable_bytes);

// Shows what waits for a background thread, and what was refused since too much did. The background
// outlives the metrics.
void AddBackgroundMetrics(const ThreadBackground& background, Metrics& metrics);

}  // namespace quire
