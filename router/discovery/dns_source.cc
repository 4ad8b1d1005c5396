#include "router/discovery/dns_source.h"

#include <utility>

#include "common/check.h"
#include "common/host_port.h"

namespace quire {

DnsSource::DnsSource(const std::string& name, Resolver& resolver, const DiscoveryRuntime& runtime,
                     SourceMetrics& metrics)
    : runtime_(runtime), resolver_(resolver), report_("worker-dns", name, runtime, metrics) {
  QUIRE_CHECK_MSG(CheckTarget(name).ok(), "main checks its flags");
  HostPort parts = *ParseHostPort(name);
  host_ = std::move(parts.host);
  port_ = parts.port;
}

void DnsSource::Start() { Ask(); }

void DnsSource::Ask() {
  const uint64_t lookup = ++lookup_;
  timer_.SetIn(kTimeout, [this] { Ask(); });
  resolver_.Resolve(host_, [this, lookup, alive = std::weak_ptr(alive_)](
                               absl::StatusOr<std::vector<std::string>> addresses) {
    if (alive.expired() || lookup != lookup_) return;
    if (addresses.ok()) {
      std::vector<std::string> targets;
      for (const std::string& address : *addresses) targets.push_back(JoinHostPort(address, port_));
      report_.Found(std::move(targets));
    } else {
      report_.Failed(addresses.status());
    }
    timer_.SetIn(kInterval, [this] { Ask(); });
  });
}

}  // namespace quire
