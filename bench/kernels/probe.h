// The limits of the machine at this moment: what a kernel's rate is measured against.
#pragma once

#include <cstdint>

namespace quire::bench {

struct Limits {
  double fma_gflops = 0.0;   // float32 fused multiply-adds of all threads, two operations each
  double read_gbytes = 0.0;  // sequential reads of memory by all threads
  double dot_gops = 0.0;     // int8 dot products of all threads; 0: the host has no AVX-512 VNNI
};

Limits ProbeLimits(int threads);

// One thread's share; returns a value that depends on the work, so that none is left out.
float FmaLoopAvx512(int64_t rounds);
float FmaLoopAvx2(int64_t rounds);
inline constexpr int64_t kFlopsPerFmaRound = 12 * 16 * 2;
int DotLoopAvx512Vnni(int64_t rounds, int seed);
inline constexpr int64_t kOpsPerDotRound = 12 * 64 * 2;

}  // namespace quire::bench
