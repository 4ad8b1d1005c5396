// One picture of a running server for `quire top`, made from two samples of its metrics.
//
// Pure. At most kMaxRows workers and engines are shown; names are a server's text and cannot
// control the terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/watch/metrics_text.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr size_t kMaxTopRows = 64;

// What only an operator may know of a worker (GET /admin/workers).
struct WorkerDetail {
  std::string target, phase, index_state, problem;
  double live_attempts = 0, running = 0, waiting = 0, free_blocks = 0, total_blocks = 0,
         cached_blocks = 0;
  bool stuck = false;
};
// INVALID_ARGUMENT when the answer is of another form.
absl::StatusOr<std::vector<WorkerDetail>> ParseWorkerDetails(const std::string& body);

struct TopInput {
  std::string url;
  const MetricsText& before;
  const MetricsText& after;
  double seconds = 1;                 // between the two
  std::vector<WorkerDetail> details;  // empty without an operator's token
  static constexpr size_t kWide = 100;
  size_t columns = kWide;  // of the terminal
};

// Lines of at most 100 columns; below 84 the tables leave out what is not needed at a glance, and
// below 64 names are cut to what is left.
std::string TopText(const TopInput& input);

}  // namespace quire::cli
