#include "common/metrics/memory_metrics.h"

#include <array>
#include <utility>

namespace quire {

void AddMemoryMetrics(std::shared_ptr<const MemoryAccount> account, const MemoryMetricNames& names,
                      Metrics& metrics) {
  Gauge& held = metrics.AddGauge(
      {names.prefix + "bytes", "Memory that " + names.who + " make " + names.holder + " hold"});
  Gauge& limit =
      metrics.AddGauge({names.prefix + "limit_bytes",
                        "The most that " + names.who + " may make " + names.holder + " hold"});
  const auto refusals = [&](const char* scope) -> Counter* {
    return &metrics.AddCounter({names.prefix + "refusals_total",
                                "Times that memory was refused, by whose limit it was: of a "
                                "connection, a tenant, or the process",
                                {{"scope", scope}}});
  };
  const std::array<std::pair<MemoryScope, Counter*>, 3> all = {
      {{MemoryScope::kConnection, refusals("connection")},
       {MemoryScope::kTenant, refusals("tenant")},
       {MemoryScope::kProcess, refusals("process")}}};
  metrics.BeforeRender([account = std::move(account), &held, &limit, all] {
    held.Set(static_cast<double>(account->bytes()));
    limit.Set(static_cast<double>(account->limit()));
    for (const auto& [scope, refused] : all) {
      refused->Add(account->refused(scope) - refused->value());
    }
  });
}

}  // namespace quire
