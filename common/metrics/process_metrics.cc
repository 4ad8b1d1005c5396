#include "common/metrics/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace quire {
namespace {

uint64_t CpuMicros() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto micros = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000 + static_cast<uint64_t>(time.tv_usec);
  };
  return micros(usage.ru_utime) + micros(usage.ru_stime);
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Newer kernels (6.2) report the number as the folder's size; on older ones its entries are
// counted.
double OpenFiles() {
  constexpr char kFolder[] = "/proc/self/fd";
  struct stat about {};
  if (stat(kFolder, &about) == 0 && about.st_size > 0) return static_cast<double>(about.st_size);
  DIR* const folder = opendir(kFolder);
  if (folder == nullptr) return 0;
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // itself, and the links to it and above it
}

double MostFiles() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : 0;
}

}  // namespace

void AddProcessMetrics(Metrics& metrics, const char* program, int64_t unix_seconds) {
  Counter& cpu = metrics.AddSecondsCounter(
      {"process_cpu_seconds_total", "Processor time, of user and system."});
  Gauge& resident = metrics.AddGauge({"process_resident_memory_bytes", "Memory that is resident."});
  Gauge& files = metrics.AddGauge({"process_open_fds", "Open file descriptors."});
  metrics.AddGauge({"process_max_fds", "File descriptors that may be open."}).Set(MostFiles());
  metrics.AddGauge({"process_start_time_seconds", "When the process started, since 1970."})
      .Set(static_cast<double>(unix_seconds));
  metrics
      .AddGauge({"quire_build_info",
                 "Always 1: which build this is.",
                 {{"program", program}, {"version", QUIRE_VERSION}}})
      .Set(1);
  metrics.BeforeRender([&cpu, &resident, &files] {
    const uint64_t now = CpuMicros();
    if (now > cpu.value()) cpu.Add(now - cpu.value());
    resident.Set(ResidentBytes());
    files.Set(OpenFiles());
  });
}

}  // namespace quire
