#include "router/client_memory.h"

#include <algorithm>

namespace quire {
namespace {

// Assumed where neither the kernel nor a cgroup reports how much memory there is.
constexpr int64_t kUnknownUsableBytes = int64_t{2} << 30;

size_t LimitOf(config::Bytes flag, size_t otherwise) {
  return flag.value > 0 ? static_cast<size_t>(flag.value) : otherwise;
}

}  // namespace

ClientMemory MakeClientMemory(const RouterConfig& config, int64_t usable_bytes) {
  const int64_t usable = usable_bytes > 0 ? usable_bytes : kUnknownUsableBytes;
  const size_t process = LimitOf(config.max_client_memory, static_cast<size_t>(usable / 4));
  ClientMemory memory;
  memory.process = std::make_shared<MemoryAccount>(process);
  memory.tenant_bytes = std::min(process, LimitOf(config.max_tenant_memory, process / 2));
  memory.connection_bytes = std::min(process, LimitOf(config.max_connection_memory, process / 4));
  return memory;
}

void AddBackgroundMetrics(const ThreadBackground& background, Metrics& metrics) {
  Gauge& queued = metrics.AddGauge({.name = "quire_router_background_queued",
                                    .help = "Work of clients that waits for a background thread"});
  const auto refusals = [&metrics](const char* cause) -> Counter& {
    return metrics.AddCounter({.name = "quire_router_background_refusals_total",
                               .help = "Work that was refused since too much waits, of all clients "
                                       "or of its tenant",
                               .labels = {{"cause", cause}}});
  };
  Counter& full = refusals("queue_full");
  Counter& tenant_full = refusals("tenant_full");
  metrics.BeforeRender([&background, &queued, &full, &tenant_full] {
    queued.Set(static_cast<double>(background.queued()));
    full.Add(background.refused() - full.value());
    tenant_full.Add(background.refused_of_owners() - tenant_full.value());
  });
}

}  // namespace quire
