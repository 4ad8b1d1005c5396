#include "worker/host_cpus.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace quire {
namespace {

constexpr int kMaxCgroupDepth = 64;
constexpr std::streamsize kMaxFileBytes = 65536;

std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path);
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), kMaxFileBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// The path of our cgroup in a hierarchy: version 2 is "0::/path", version 1 "4:cpu,cpuacct:/path".
std::string CgroupPath(const std::string& proc_cgroup, bool version2) {
  std::istringstream lines(proc_cgroup);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool match =
        version2 ? controllers == ",," : controllers.find(",cpu,") != std::string::npos;
    if (match) return line.substr(second + 1);
  }
  return "";
}

double ReadNumber(std::string_view text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

HostCpus ReadHostCpus(const std::string& root) {
  HostCpus cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus.affinity = std::max(1, CPU_COUNT(&set));
  const std::string proc = ReadSmallFile(root + "/proc/self/cgroup");
  for (const bool version2 : {true, false}) {
    const std::string base = root + (version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu");
    std::string path = CgroupPath(proc, version2);
    for (int depth = 0; depth < kMaxCgroupDepth; ++depth) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      const std::string folder = base + path;
      std::string quota = version2 ? ReadSmallFile(folder + "/cpu.max")
                                   : ReadSmallFile(folder + "/cpu.cfs_quota_us") + " " +
                                         ReadSmallFile(folder + "/cpu.cfs_period_us");
      if (quota.size() > 1) cpus.quotas.push_back(std::move(quota));
      if (path.empty()) break;
      path.resize(std::min(path.rfind('/'), path.size()));
    }
  }
  return cpus;
}

double QuotaCpus(std::string_view quota) {
  const size_t space = quota.find(' ');
  if (space == std::string_view::npos) return 0;
  const double allowed = ReadNumber(quota.substr(0, space));
  const double period = ReadNumber(quota.substr(space + 1));
  return allowed > 0 && period > 0 ? allowed / period : 0;
}

int DefaultThreads(const HostCpus& cpus, int workers_on_host) {
  double usable = cpus.affinity;
  for (const std::string& quota : cpus.quotas) {
    const double allowed = QuotaCpus(quota);
    if (allowed > 0) usable = std::min(usable, allowed);
  }
  return std::max(1, static_cast<int>(usable / std::max(1, workers_on_host)));
}

}  // namespace quire
