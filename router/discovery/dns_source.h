// Workers from DNS: every address of a name, as a headless service of Kubernetes has it.
//
// Owner: main, on the router's executor. The name is resolved again every kInterval; while it does
// not resolve, the last addresses stay in use.
#pragma once

#include <memory>
#include <string>

#include "common/runtime/timer.h"
#include "router/discovery/resolver.h"
#include "router/discovery/source.h"

namespace quire {

class DnsSource final : public WorkerSource {
 public:
  static constexpr Micros kInterval = 5 * kMicrosPerSecond;
  static constexpr Micros kTimeout =
      30 * kMicrosPerSecond;  // the lookup is given up after this time

  // `name` is NAME:PORT and passes CheckTarget. `resolver` outlives the source.
  DnsSource(const std::string& name, Resolver& resolver, const DiscoveryRuntime& runtime,
            SourceMetrics& metrics);
  void Start() override;

 private:
  void Ask();

  const DiscoveryRuntime& runtime_;
  Resolver& resolver_;
  SourceReport report_;
  std::string host_;
  uint32_t port_ = 0;
  uint64_t lookup_ = 0;  // the current lookup; answers of others are late
  Timer timer_{runtime_.executor};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by lookups
};

}  // namespace quire
