// Speed of the CPU kernels on a model of Gemma 3 270M's shape, beside the limits of the machine in
// the same run: quire-bench-kernels [threads] [isa] [repetitions] [name].
// A name ("prefill 512", "decode 16") runs that one alone; "limits" prints those of the machine as
// a line of JSON, and runs nothing.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/kernels/probe.h"
#include "bench/kernels/synthetic_gemma.h"
#include "kernels/backend.h"

namespace quire::bench {
namespace {

using namespace kernels;

constexpr int kBlockSize = 16;
constexpr int kContext = 1024;
constexpr int kMaxSequences = 64;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of all threads, waiting ones included while they spin: with one thread, the work itself.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A loaded model with one contiguous range of pages per sequence and group.
struct Bench {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<LoadedProgram> program;
  std::vector<std::vector<std::vector<int32_t>>> tables;

  // Seconds of one step in which each of `sequences` runs `count` tokens from `position`.
  double Step(int sequences, int position, int count) {
    std::vector<int32_t> tokens, positions, sampled;
    std::vector<BatchRow> rows;
    std::vector<std::vector<std::span<const int32_t>>> spans(sequences);
    for (int s = 0; s < sequences; ++s) {
      for (const auto& table : tables[s]) spans[s].emplace_back(table);
      BatchRow row;
      row.first_token = static_cast<int>(tokens.size());
      row.token_count = count;
      row.first_position = position;
      row.block_tables = spans[s];
      rows.push_back(row);
      for (int i = 0; i < count; ++i) {
        tokens.push_back((s * 977 + (position + i) * 131) % 262144);
        positions.push_back(position + i);
      }
      sampled.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
    SampleRow greedy;
    greedy.temperature = 0.0f;
    std::vector<SampleRow> sample_rows(sequences, greedy);
    std::vector<SampleOutput> outputs(sequences);
    const StepBatch batch{tokens, positions, rows, {}, sampled, sample_rows, outputs};
    const double start = Seconds();
    program->Run(batch);
    const double seconds = Seconds() - start;
    if (outputs[0].token < 0) std::printf("no token\n");
    return seconds;
  }
};

Bench Load(const SyntheticGemma& model, const CpuOptions& options) {
  Bench bench;
  std::string error;
  bench.backend = MakeCpuBackend(options, error);
  if (bench.backend == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(2);
  }
  ProgramOptions load;
  load.kv = DealLayers(model.program().layer_windows,
                       {.block_size = kBlockSize, .kv_heads = 1, .head_dim = 256});
  const int blocks = kContext / kBlockSize;
  const int groups = static_cast<int>(load.kv.groups.size());
  load.page_count = int64_t{blocks} * groups * kMaxSequences;
  const double start = Seconds();
  bench.program = bench.backend->Load(model.program(), load);
  std::printf("%s; %.0f MB of weights packed in %.2f s\n", bench.backend->Description().c_str(),
              1e-6 * static_cast<double>(bench.program->WeightBytes()), Seconds() - start);
  int32_t page = 0;
  bench.tables.resize(kMaxSequences);
  for (auto& sequence : bench.tables) {
    sequence.resize(groups);
    for (auto& table : sequence) {
      for (int i = 0; i < blocks; ++i) table.push_back(page++);
    }
  }
  return bench;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(const char* name, int threads, int repetitions, const std::function<double()>& rate) {
  std::vector<double> rates;
  const Limits before = ProbeLimits(threads);
  double tokens = 0.0;
  const double cpu_start = CpuSeconds();
  for (int i = 0; i < repetitions; ++i) {
    const double start = Seconds();
    rates.push_back(rate());
    tokens += rates.back() * (Seconds() - start);
  }
  const double cpu = CpuSeconds() - cpu_start;
  const Limits after = ProbeLimits(threads);
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  std::printf(
      "%-12s %7.1f tokens/s (%.1f to %.1f), %.1f per CPU second; probes %.0f, %.0f GFLOP/s, %.1f, "
      "%.1f GB/s\n",
      name, Median(rates), *low, *high, tokens / cpu, before.fma_gflops, after.fma_gflops,
      before.read_gbytes, after.read_gbytes);
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  CpuOptions options;
  options.threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (argc > 2) options.isa = argv[2];
  const int repetitions = argc > 3 ? std::atoi(argv[3]) : 5;
  if (argc > 4 && std::string(argv[4]) == "limits") {
    const Limits limits = ProbeLimits(options.threads);
    std::printf("{\"read_gb_per_s\": %.1f, \"fma_gflop_per_s\": %.0f, \"dot_gop_per_s\": %.0f}\n",
                limits.read_gbytes, limits.fma_gflops, limits.dot_gops);
    return 0;
  }
  const SyntheticGemma model;
  Bench bench = Load(model, options);
  bench.Step(1, 0, 16);
  const std::string only = argc > 4 ? argv[4] : "";
  if (only.empty() || only == "prefill 512") {
    Measure("prefill 512", options.threads, repetitions,
            [&] { return 512 / bench.Step(1, 0, 512); });
  }
  for (const int batch : {1, 4, 16, 64}) {
    const std::string name = "decode " + std::to_string(batch);
    if (!only.empty() && only != name) continue;
    for (int s = 0; s < 2; ++s) bench.Step(batch, 0, 2048 / batch < 128 ? 2048 / batch : 128);
    Measure(name.c_str(), options.threads, repetitions, [&] {
      double seconds = 0.0;
      for (int i = 0; i < 8; ++i) seconds += bench.Step(batch, 128 + i, 1);
      return 8 * batch / seconds;
    });
  }
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) { return quire::bench::Main(argc, argv); }
