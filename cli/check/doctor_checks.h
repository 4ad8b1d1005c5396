// The checks of `quire doctor`: each reports what it found and, where something is wrong, what to
// do.
//
// Checks read the state of this machine and of given addresses; they change nothing. Blocking, on
// the calling thread; network checks test `cancelled` at least ten times a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/ask.h"
#include "cli/check/worker_plan.h"
#include "common/status.h"
#include "kernels/libraries/shared_library.h"

namespace quire::cli {

enum class Verdict { kGood, kWarning, kBad };
std::string_view VerdictName(Verdict verdict);

struct Finding {
  std::string subject;  // "memory"
  Verdict verdict = Verdict::kGood;
  std::string what;    // as it was found
  std::string remedy;  // empty: there is nothing to do
};

// The facts about the machine that checks need; from ReadMachine, or made up in tests.
struct Machine {
  std::string processor;
  std::vector<std::string> features;  // of x86, as /proc/cpuinfo names them; empty elsewhere
  int affinity_cpus = 0;
  double quota_cpus = 0;  // 0: none
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
  int64_t shared_memory_bytes = -1;  // free in /dev/shm; −1: it is not there
  int64_t open_files_soft = 0, open_files_hard = 0;
  std::string huge_pages;  // the setting in brackets: "always", "madvise", "never"
  int gpus = 0;
};
Machine ReadMachine(const std::string& root);

// Pure.
std::vector<Finding> JudgeMachine(const Machine& machine);
Finding JudgePlan(const std::string& model, const WorkerPlan& plan);

// The sibling programs are present and have this version.
Finding CheckPrograms();
// NVML's report about each GPU; `gpus` are those that the machine shows. Nothing where there are
// none.
inline constexpr int64_t kGpuAnswerMillis = 5'000;
std::vector<Finding> CheckGpus(const kernels::LibraryPlaces& places, int gpus,
                               int64_t limit_millis = kGpuAnswerMillis);
// Whether a server could listen on `port` of `host`.
Finding CheckPort(const std::string& host, int32_t port, const std::string& flag);
// Whether a server listens at HOST:PORT, such as a worker.
Finding CheckPeer(const std::string& address, const std::atomic<bool>& cancelled);
// Whether a server answers that a request would be served, and which models it has.
std::vector<Finding> CheckServer(const AskOptions& server, const std::atomic<bool>& cancelled);

// One line each, aligned, remedies below; and as JSON.
std::string FindingsText(const std::vector<Finding>& findings);
std::string FindingsJson(const std::vector<Finding>& findings);

}  // namespace quire::cli
