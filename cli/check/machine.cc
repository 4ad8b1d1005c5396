// The resources of this machine, read from /proc and /sys.
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/check/doctor_checks.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;
constexpr int kMaxGpus = 64;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

// The text after "name" and its colon on its line; empty when there is none.
std::string FieldOf(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

int64_t NumberOf(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "QUOTA PERIOD" of version 2; 0 for "max".
double QuotaOf(const std::string& text) {
  std::istringstream words(text);
  double quota = 0, period = 0;
  return words >> quota >> period && period > 0 ? quota / period : 0;
}

// The tightest quota of the process's cgroup and those above it.
double TightestQuota(const std::string& root) {
  const std::string own = ReadText(root + "proc/self/cgroup");
  const size_t colons = own.find("0::/");
  std::filesystem::path path = "sys/fs/cgroup";
  std::vector<std::string> folders = {path.string()};
  if (colons != std::string::npos) {
    const std::string inner = own.substr(colons + 4, own.find('\n', colons) - colons - 4);
    for (const std::filesystem::path& part : std::filesystem::path(inner)) {
      if (part == ".." || folders.size() > 64) break;
      folders.push_back((path /= part).string());
    }
  }
  double tightest = 0;
  for (const std::string& folder : folders) {
    const double quota = QuotaOf(ReadText(root + folder + "/cpu.max"));
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
  }
  return tightest;
}

}  // namespace

Machine ReadMachine(const std::string& root) {
  constexpr int64_t kKib = 1024;
  Machine machine;
  const std::string cpus = ReadText(root + "proc/cpuinfo");
  machine.processor = FieldOf(cpus, "model name");
  if (machine.processor.empty()) machine.processor = "unknown processor";
  std::istringstream features(FieldOf(cpus, "flags"));
  for (std::string feature; features >> feature;) machine.features.push_back(feature);
  cpu_set_t set;
  CPU_ZERO(&set);
  machine.affinity_cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  machine.quota_cpus = TightestQuota(root);
  const std::string memory = ReadText(root + "proc/meminfo");
  machine.total_bytes = NumberOf(FieldOf(memory, "MemTotal")) * kKib;
  machine.available_bytes = NumberOf(FieldOf(memory, "MemAvailable")) * kKib;
  struct statvfs shared {};
  if (statvfs((root + "dev/shm").c_str(), &shared) == 0) {
    machine.shared_memory_bytes = static_cast<int64_t>(shared.f_bavail * shared.f_frsize);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    constexpr rlim_t kMost = int64_t{1} << 40;
    machine.open_files_soft = static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
    machine.open_files_hard = static_cast<int64_t>(std::min(limit.rlim_max, kMost));
  }
  const std::string pages = ReadText(root + "sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = pages.find('['), close = pages.find(']');
  if (open < close && close != std::string::npos) {
    machine.huge_pages = pages.substr(open + 1, close - open - 1);
  }
  std::error_code error;
  while (machine.gpus < kMaxGpus &&
         std::filesystem::exists(root + "dev/nvidia" + std::to_string(machine.gpus), error)) {
    ++machine.gpus;
  }
  return machine;
}

}  // namespace quire::cli
