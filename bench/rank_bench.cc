// Tokens per second of one model on 1, 2, … tensor-parallel CPU ranks that share the same threads:
// what cutting a model costs where it buys no memory bandwidth. One line of JSON.
//
//   rank_bench --model=PATH --ranks=2 --threads=2 --whole-experts=1
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/flags.h"
#include "bench/measure.h"
#include "common/json/json.h"
#include "kernels/backend.h"
#include "kernels/collectives/shared_group.h"
#include "worker/model/model.h"

namespace quire::bench {
namespace {

constexpr int kBlockSize = 16;
constexpr int kContext = 512;
constexpr int kMostRows = 16;
constexpr int kDecodeSteps = 16;
constexpr int64_t kWaitMicros = 60'000'000;

struct Options {
  std::string model;
  int32_t ranks = 1;
  int32_t threads = 2;  // of all ranks together
  int32_t repeats = 3;
  int32_t whole_experts = 0;  // 1: ranks divide experts, not the width of each
};

struct OneRank {
  std::unique_ptr<kernels::Communicator> communicator;
  std::unique_ptr<kernels::Backend> backend;
  kernels::StepProgram steps;
  std::unique_ptr<kernels::LoadedProgram> program;
};

class Ranks {
 public:
  bool Load(model::Model& model, const Options& options, std::string& error) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      auto program = model.BuildRank({rank, options.ranks, /*adapters=*/false,
                                      options.whole_experts != 0 && options.ranks > 1});
      if (!program.ok()) {
        error = StatusMessage(program.status());
        return false;
      }
      OneRank& one = ranks_.emplace_back();
      one.steps = *std::move(program);
      kernels::CpuOptions cpu;
      cpu.threads = std::max(1, options.threads / options.ranks);
      one.backend = kernels::MakeCpuBackend(cpu, error);
      if (one.backend == nullptr) return false;
    }
    kernels::ProgramOptions load = OptionsOf(ranks_.front().steps);
    kernels::SharedGroupOptions shared;
    shared.size = options.ranks;
    shared.arena_bytes = static_cast<size_t>(
        ranks_.front().backend->EstimateSharedBytes(ranks_.front().steps, load));
    group_ = kernels::SharedGroup::Create(shared, error);
    if (group_ == nullptr) return false;
    for (int rank = 0; rank < options.ranks; ++rank) {
      OneRank& one = ranks_[static_cast<size_t>(rank)];
      one.communicator = group_->Join(rank);
      one.communicator->SetDeadline(kWaitMicros);
      load = OptionsOf(one.steps);
      load.communicator = one.communicator.get();
      one.program = one.backend->Load(one.steps, load);
    }
    PlacePages(load);
    return true;
  }

  // Microseconds of `steps` steps in which each of `rows` sequences runs `count` tokens, one step
  // behind the other from `position`.
  double Run(int rows, int position, int count, int steps) {
    const double start = NowMicros();
    std::vector<std::thread> threads;
    for (OneRank& one : ranks_) {
      threads.emplace_back([&, this] {
        for (int i = 0; i < steps; ++i) Step(*one.program, rows, position + i * count, count);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return NowMicros() - start;
  }

  bool failed() const {
    return ranks_.front().communicator->failure() != kernels::CommFailure::kNone;
  }
  double MegabytesOfRank() const {
    return 1e-6 * static_cast<double>(ranks_[0].program->WeightBytes());
  }

 private:
  static kernels::ProgramOptions OptionsOf(const kernels::StepProgram& program) {
    kernels::ProgramOptions load;
    load.kv = kernels::DealLayers(program.layer_windows,
                                  kernels::KvShapeOf(program, kBlockSize, kernels::KvType::kF32));
    load.page_count =
        int64_t{kContext / kBlockSize} * kMostRows * static_cast<int64_t>(load.kv.groups.size());
    load.max_tokens = kContext;
    load.max_rows = kMostRows;
    load.max_samples = kMostRows;
    return load;
  }

  void PlacePages(const kernels::ProgramOptions& load) {
    int32_t page = 0;
    tables_.resize(kMostRows);
    for (auto& groups : tables_) {
      groups.resize(load.kv.groups.size());
      for (auto& table : groups) {
        for (int block = 0; block < kContext / kBlockSize; ++block) table.push_back(page++);
      }
    }
  }

  void Step(kernels::LoadedProgram& program, int rows, int position, int count) const {
    std::vector<int32_t> tokens;
    std::vector<int32_t> positions;
    std::vector<int32_t> sampled;
    std::vector<kernels::BatchRow> batch_rows;
    std::vector<std::vector<std::span<const int32_t>>> spans(static_cast<size_t>(rows));
    for (int row = 0; row < rows; ++row) {
      auto& span = spans[static_cast<size_t>(row)];
      for (const auto& table : tables_[static_cast<size_t>(row)]) span.emplace_back(table);
      batch_rows.push_back({static_cast<int>(tokens.size()), count, position, span});
      for (int i = 0; i < count; ++i) {
        tokens.push_back((row * 977 + (position + i) * 131) % 1000);
        positions.push_back(position + i);
      }
      sampled.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
    kernels::SampleRow greedy;
    greedy.temperature = 0.0f;
    const std::vector<kernels::SampleRow> sample_rows(sampled.size(), greedy);
    std::vector<kernels::SampleOutput> outputs(sampled.size());
    program.Run({tokens, positions, batch_rows, {}, sampled, sample_rows, outputs});
  }

  std::unique_ptr<kernels::SharedGroup> group_;
  std::vector<OneRank> ranks_;
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // [sequence][group][block]
};

json::Object Measure(Ranks& ranks, const Options& options) {
  json::Object out;
  const auto best = [&options](double tokens, const auto& run) {
    double least = run();
    for (int i = 1; i < options.repeats; ++i) least = std::min(least, run());
    return tokens / least * 1e6;
  };
  const int prompt = kContext / 2;
  out["prefill tokens/s"] = best(prompt, [&] { return ranks.Run(1, 0, prompt, 1); });
  for (const int rows : {1, 8, kMostRows}) {
    out["decode tokens/s, " + std::to_string(rows) + " rows"] =
        best(rows * kDecodeSteps, [&] { return ranks.Run(rows, 32, 1, kDecodeSteps); });
  }
  return out;
}

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!ParseFlags("rank_bench", args,
                  {{"model", &options.model},
                   {"ranks", &options.ranks},
                   {"threads", &options.threads},
                   {"repeats", &options.repeats},
                   {"whole-experts", &options.whole_experts}})) {
    return 2;
  }
  auto model = model::LoadModel(options.model, {.with_text = false});
  if (!model.ok()) {
    std::fprintf(stderr, "rank_bench: %s\n", StatusMessage(model.status()).c_str());
    return 3;
  }
  Ranks ranks;
  std::string error;
  if (!ranks.Load(**model, options, error)) {
    std::fprintf(stderr, "rank_bench: %s\n", error.c_str());
    return 2;
  }
  json::Object out = Measure(ranks, options);
  out["ranks"] = options.ranks;
  out["whole experts"] = options.whole_experts;
  out["threads"] = options.threads;
  out["weights of a rank MB"] = ranks.MegabytesOfRank();
  if (ranks.failed()) return 1;
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  return quire::bench::Main(quire::config::ArgumentsFromMain(argc, argv));
}
