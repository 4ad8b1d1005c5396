// The router's account of the memory that it holds for its clients: one for the process, and the
// limits of the accounts below it. The limit follows the machine or the pod unless a flag sets it.
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

// `usable_bytes`: what the process may still allocate; 0 when it is unknown. Unless a flag says
// otherwise, clients get a quarter of that; one tenant gets at most half of the clients' part, and
// one connection at most a quarter.
ClientMemory MakeClientMemory(const RouterConfig& config, int64_t usable_bytes);

// Shows how much waits for a background thread, and how many requests were refused because too much
// did. The background outlives the metrics.
void AddBackgroundMetrics(const ThreadBackground& background, Metrics& metrics);

}  // namespace quire
