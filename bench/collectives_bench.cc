// What a collective over shared memory costs, in microseconds: by ranks, by size, as threads and as
// processes. Rank 0 is this program itself; one line of JSON.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/flags.h"
#include "bench/measure.h"
#include "kernels/collectives/shared_group.h"

namespace quire::bench {
namespace {

constexpr size_t kArenaBytes = 4 << 20;
constexpr size_t kSumBytes[] = {2'560, 10'240, 163'840, 1'048'576, 2'621'440};
constexpr size_t kGatherBytes[] = {16, 8'192};
constexpr int64_t kWaitMicros = 60'000'000;

struct Case {
  std::string op;
  size_t bytes = 0;
  std::function<kernels::CommFailure(kernels::Communicator&, std::byte* memory)> run;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back(
      {"barrier", 0, [](kernels::Communicator& ranks, std::byte*) { return ranks.Barrier(); }});
  for (const size_t bytes : kSumBytes) {
    cases.push_back(
        {"all_reduce", bytes, [bytes](kernels::Communicator& ranks, std::byte* memory) {
           return ranks.AllReduceSum({reinterpret_cast<float*>(memory), bytes / sizeof(float)});
         }});
  }
  for (const size_t bytes : kGatherBytes) {
    cases.push_back({"all_gather", bytes, [bytes](kernels::Communicator& ranks, std::byte* memory) {
                       const size_t all = bytes * static_cast<size_t>(ranks.size());
                       return ranks.AllGather({memory, bytes}, {memory + bytes, all});
                     }});
  }
  return cases;
}

// All ranks run the same; what rank 0 measured comes back.
std::vector<std::vector<double>> RunRank(kernels::Communicator& ranks, int rounds) {
  std::byte* const memory = ranks.Allocate(kArenaBytes);
  ranks.SetDeadline(kWaitMicros);
  std::vector<std::vector<double>> micros;
  for (const Case& one : Cases()) {
    std::vector<double>& times = micros.emplace_back();
    for (int round = -rounds / 10; round < rounds; ++round) {
      const double start = NowMicros();
      if (one.run(ranks, memory) != kernels::CommFailure::kNone) return {};
      if (round >= 0) times.push_back(NowMicros() - start);
    }
  }
  return micros;
}

std::vector<std::vector<double>> Measure(int size, bool processes, int rounds) {
  std::string error;
  const kernels::SharedGroupOptions options{size, kArenaBytes};
  const auto group = kernels::SharedGroup::Create(options, error);
  if (group == nullptr) return {};
  std::vector<std::thread> threads;
  std::vector<pid_t> children;
  for (int rank = 1; rank < size; ++rank) {
    if (!processes) {
      threads.emplace_back([&group, rank, rounds] { RunRank(*group->Join(rank), rounds); });
      continue;
    }
    children.push_back(fork());
    if (children.back() != 0) continue;
    const auto own = kernels::SharedGroup::Open(options, dup(group->fd()), error);
    _exit(own != nullptr && !RunRank(*own->Join(rank), rounds).empty() ? 0 : 1);
  }
  std::vector<std::vector<double>> micros = RunRank(*group->Join(0), rounds);
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return micros;
}

int Main(const std::vector<std::string>& args) {
  int32_t rounds = 2000;
  if (!ParseFlags("collectives_bench", args, {{"rounds", &rounds}})) return 2;
  json::Array results;
  for (const bool processes : {false, true}) {
    for (const int size : {1, 2, 4}) {
      const std::vector<std::vector<double>> micros = Measure(size, processes, rounds);
      const std::vector<Case> cases = Cases();
      if (micros.size() != cases.size()) {
        std::fprintf(stderr, "collectives_bench: a collective of %d ranks failed\n", size);
        return 1;
      }
      for (size_t i = 0; i < cases.size(); ++i) {
        json::Object row = Spread(micros[i]);
        row["ranks"] = size;
        row["backend"] = processes ? "process" : "thread";
        row["op"] = cases[i].op;
        row["bytes"] = cases[i].bytes;
        results.push_back(std::move(row));
      }
    }
  }
  json::Object line;
  line["unit"] = "us";
  line["rounds"] = rounds;
  line["results"] = std::move(results);
  std::printf("%s\n", json::Serialize(line).c_str());
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  return quire::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
