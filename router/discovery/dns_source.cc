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

DnsSource::~DnsSource() {
  if (timer_ != 0) runtime_.executor.Cancel(timer_);
}

void DnsSource::Start() { Ask(); }

void DnsSource::Again(Micros delay) {
  if (timer_ != 0) runtime_.executor.Cancel(timer_);
  timer_ = runtime_.executor.PostAt(runtime_.executor.clock().Now() + delay, [this] {
    timer_ = 0;
    Ask();
  });
}

void DnsSource::Ask() {
  const uint64_t lookup = ++lookup_;
  Again(kTimeout);
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
    Again(kInterval);
  });
}

}  // namespace quire
