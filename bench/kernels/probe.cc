#include "bench/kernels/probe.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

namespace quire::bench {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Best of three runs of `work(thread)` on all threads, in seconds.
double Best(int threads, const std::function<void(int)>& work) {
  double best = 1e30;
  for (int run = 0; run < 3; ++run) {
    const double start = Seconds();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& other : others) other.join();
    best = std::min(best, Seconds() - start);
  }
  return best;
}

}  // namespace

Limits ProbeLimits(int threads) {
  constexpr int64_t kRounds = 8'000'000;
  constexpr size_t kWords = size_t{32} << 20;  // 256 MiB
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f");
  std::vector<uint64_t> sums(threads * 8);
  Limits limits;
  const double fma = Best(threads, [&](int t) {
    sums[t * 8] += static_cast<uint64_t>(wide ? FmaLoopAvx512(kRounds) : FmaLoopAvx2(kRounds));
  });
  limits.fma_gflops = 1e-9 * threads * kRounds * kFlopsPerFmaRound / fma;
  if (__builtin_cpu_supports("avx512vnni")) {
    const double dot = Best(threads, [&](int t) {
      sums[t * 8] += static_cast<uint64_t>(DotLoopAvx512Vnni(kRounds, t + threads));
    });
    limits.dot_gops = 1e-9 * threads * kRounds * kOpsPerDotRound / dot;
  }
  static std::vector<uint64_t> memory(kWords, 1);
  const double read = Best(threads, [&](int t) {
    const size_t begin = kWords * t / threads;
    const size_t end = kWords * (t + 1) / threads;
    uint64_t lanes[8] = {};
    for (size_t i = begin; i < end; i += 8) {
      for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += memory[i + lane];
    }
    for (uint64_t lane : lanes) sums[t * 8] += lane;
  });
  limits.read_gbytes = 1e-9 * 8 * kWords / read;
  if (sums[0] == 42) std::printf(" ");  // keeps the work
  return limits;
}

}  // namespace quire::bench
