// The requests of a load, sent when they are due and timed as they come back.
//
// Blocking, on the calling thread, which starts one thread for each request that may be under way
// and joins them all. At most kMaxBenchStreams; more wait for a place, as with --max-concurrency.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/bench_dataset.h"
#include "cli/bench/bench_report.h"

namespace quire::cli {

inline constexpr int64_t kMaxBenchStreams = 1024;

struct BenchRequests {
  AskOptions server;     // where, which model, whose key
  std::string endpoint;  // "/v1/completions"
  bool chat = false;
  bool ignore_eos = false;
  json::Object extra;  // further fields of each body
  int64_t max_concurrency = 0;
};

// One request. The call itself never fails: the result holds any error. Times are seconds since
// `begin`, of std::chrono::steady_clock.
BenchResult SendOne(const BenchRequests& requests, const BenchPrompt& prompt, double begin_seconds,
                    const std::atomic<bool>& cancelled);

// All of them, each at its time in `arrivals`; in the order of `prompts`. Those that `cancelled`
// kept from being sent are left out. After each request `done` gets the number that have ended.
std::vector<BenchResult> SendAll(const BenchRequests& requests,
                                 const std::vector<BenchPrompt>& prompts,
                                 const std::vector<double>& arrivals,
                                 const std::atomic<bool>& cancelled,
                                 const std::function<void(size_t)>& done);

// Of a steady clock, in seconds.
double SteadySeconds();

}  // namespace quire::cli
