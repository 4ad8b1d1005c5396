// The results of a load on a server: vLLM's figures, in its words and under its keys.
//
// Pure. Times are in seconds, as vLLM's are; the report shows milliseconds. Percentiles are linear
// between the two nearest ranks, as numpy's.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {

struct BenchResult {
  bool success = false;
  std::string error;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double start = 0;                   // since the run began
  double first_token = 0;             // since start; 0: none came
  double latency = 0;                 // since start, to the last byte
  std::vector<double> gaps;           // between chunks, the first token's wait left out
  std::vector<double> chunk_times;    // since the run began
  std::vector<int64_t> chunk_tokens;  // that came with each, as far as they can be separated
  std::string text;
};

struct BenchSettings {
  std::string backend, model, label, url;
  double request_rate = 0;  // 0: all at once
  double burstiness = 1;
  int64_t num_prompts = 0;
  int64_t max_concurrency = 0;                  // 0: none was given
  std::vector<std::string> percentile_metrics;  // of ttft, tpot, itl, e2el
  std::vector<double> percentiles;
  std::vector<std::pair<std::string, double>> goodput;  // metric, most milliseconds
  bool detailed = false;
};

// "ttft:200". INVALID_ARGUMENT says what would be right.
absl::StatusOr<std::pair<std::string, double>> ParseGoodput(const std::string& text);

struct Spread {
  double mean = 0, median = 0, deviation = 0;
  std::vector<double> percentiles;  // as asked for
};
Spread SpreadOf(std::vector<double> values, const std::vector<double>& percentiles);

struct BenchMetrics {
  double duration = 0;
  int64_t completed = 0, failed = 0;
  int64_t input_tokens = 0, output_tokens = 0;
  int64_t good = 0;  // completed within every bound of the goodput
  double peak_tokens_per_second = 0;
  int64_t peak_concurrency = 0;
  std::vector<double> ttft, tpot, itl, e2el;  // milliseconds
};
BenchMetrics MeasureResults(const std::vector<BenchResult>& results, const BenchSettings& settings,
                            double duration);

std::string BenchReport(const BenchMetrics& metrics, const BenchSettings& settings);
json::Object BenchJson(const BenchMetrics& metrics, const BenchSettings& settings,
                       const std::vector<BenchResult>& results);
// One picture: tokens a second and requests under way over time, and how first tokens and gaps are
// spread.
std::string BenchPlot(const BenchMetrics& metrics, const std::vector<BenchResult>& results);

}  // namespace quire::cli
