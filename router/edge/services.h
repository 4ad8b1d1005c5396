// What the HTTP and the gRPC edge share: the pipeline behind them, and clock, keys and memory.
//
// Owner: main; outlives every connection. Event loop only, except for the members that calls read
// on background threads: the clock, keys and request_limits.
#pragma once

#include <memory>
#include <string>

#include "common/log/log.h"
#include "common/memory_account.h"
#include "common/runtime/runtime.h"
#include "router/core/edge_metrics.h"
#include "router/core/request_limits.h"
#include "router/keys/key_ring.h"
#include "router/pipeline/pipeline.h"

namespace quire {

struct EdgeServices {
  Executor& executor;
  Pipeline& pipeline;
  Background& background;
  Rng& rng;
  EdgeMetrics& counters;
  Logger& log;
  std::string version = {};
  KeyRing* keys = nullptr;  // decides who may come in; nullptr: everyone may
  RequestLimits request_limits = {};
  // What the router holds for all clients; connections make their own accounts below it.
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>(size_t{1} << 30);
  // Bodies that are not parsed yet, counted apart.
  std::shared_ptr<MemoryAccount> bodies =
      std::make_shared<MemoryAccount>(size_t{1} << 30, nullptr, MemoryScope::kWaiting);
  bool leaving = false;  // not ready any more, although it still serves
};

// kNotFound, naming what the tenant may use, when `model` is not served to it.
std::optional<ApiError> CheckModelAccess(const EdgeServices& services,
                                         const std::shared_ptr<const TenantProfile>& tenant,
                                         std::string_view model);

// A client's name for its request: 1 to 128 visible ASCII characters without quotes and
// backslashes.
bool UsableRequestId(std::string_view id);
std::string NewRequestId(Rng& rng);

}  // namespace quire
