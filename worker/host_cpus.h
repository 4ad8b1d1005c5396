// How many CPUs this process may use: its affinity and the tightest CPU quota of its cgroups.
//
// Values and pure functions, except ReadHostCpus, which reads /proc and /sys once at start.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct HostCpus {
  int affinity = 1;  // CPUs in the affinity mask
  std::vector<std::string>
      quotas;  // from the process's cgroup to the root: "QUOTA PERIOD" or "max PERIOD"
};

// `root` is "/", or a folder laid out like it in tests.
HostCpus ReadHostCpus(const std::string& root);

// CPUs that one "QUOTA PERIOD" allows; 0 when it is unlimited or unreadable.
double QuotaCpus(std::string_view quota);

// At least 1: the smaller of affinity and quota, divided by the workers on the host, rounded down.
int DefaultThreads(const HostCpus& cpus, int workers_on_host);

}  // namespace quire
