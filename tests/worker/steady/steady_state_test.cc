// After its warm-up a step of rows that run allocates nothing: plan, packet, row state, commit,
// stop rules, outputs. This binary counts every call of operator new while a step is made.
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/tag_runner.h"
#include "worker/engine/engine.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
thread_local bool exempt = false;

void* Allocate(std::size_t size) {
  if (counting && !exempt) ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* AllocateAligned(std::size_t size, std::align_val_t alignment) {
  if (counting && !exempt) ++allocations;
  const std::size_t align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void* operator new(std::size_t size, std::align_val_t a) { return AllocateAligned(size, a); }
void* operator new[](std::size_t size, std::align_val_t a) { return AllocateAligned(size, a); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace quire::test {
namespace {

constexpr int32_t kRows = 256;
constexpr int32_t kVocab = 64;
constexpr int32_t kLength = 600;

// The tag model's own arithmetic is a fake's: what it allocates is not counted.
class ExemptProgram final : public kernels::LoadedProgram {
 public:
  explicit ExemptProgram(kernels::LoadedProgram& inner) : inner_(inner) {}
  void Run(const kernels::StepBatch& batch) override {
    exempt = true;
    inner_.Run(batch);
    exempt = false;
  }
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) override {
    inner_.RunWithLogits(batch, logits);
  }
  void PoisonPage(int32_t page) override { inner_.PoisonPage(page); }
  int64_t WeightBytes() const override { return 0; }
  int64_t WorkspaceBytes() const override { return 0; }
  int64_t PoolBytes() const override { return 0; }

 private:
  kernels::LoadedProgram& inner_;
};

SubmitCommand Ask(uint64_t request, const EngineOptions& options) {
  std::mt19937_64 rng(request);
  SubmitCommand command;
  command.router = RouterInstance(1 + request % 3);
  Submit& submit = command.submit;
  submit.key = {RequestNumber(request), Attempt(1)};
  submit.submit_number = request;
  submit.model_id = options.model_id;
  submit.tenant = request % 2 == 0 ? "even" : "odd";
  submit.prompt_ids.resize(1 + rng() % 60);
  for (TokenId& id : submit.prompt_ids) id = static_cast<TokenId>(rng() % kVocab);
  submit.choices.resize(1);
  submit.sampling.max_tokens = 500;
  submit.sampling.ignore_eos = true;
  submit.sampling.seed = request;
  submit.sampling.logprobs = static_cast<int32_t>(request % 4 == 0 ? request % 5 : 0);
  submit.sampling.temperature = request % 3 == 0 ? 0.0f : 1.0f;
  submit.sampling.top_k = request % 5 == 0 ? 10 : 0;
  submit.sampling.min_tokens = request % 7 == 0 ? 400 : 0;
  submit.initial_window = request % 2 == 0 ? 100'000 : 0;
  return command;
}

class SteadyStateTest : public testing::TestWithParam<int> {};

TEST_P(SteadyStateTest, AStepOfRunningRowsAllocatesNothing) {
  EngineOptions options;
  options.max_model_len = kLength;
  options.max_num_seqs = kRows;
  options.max_waiting_requests = kRows;
  options.block_size = 16;
  options.cache_kinds = {{0, 1}, {33, 2}};
  options.page_count = int64_t{kRows} * (kLength / 16 + 1) * 3;
  options.model_id = "tag";
  options.vocab_size = kVocab;
  Metrics metrics;
  EngineMetrics engine_metrics(metrics);
  options.metrics = &engine_metrics;
  TagProgram tags({options.block_size, options.page_count, options.cache_kinds}, kVocab);
  ExemptProgram program(tags);
  CpuRunnerOptions runner_options;
  runner_options.limits = {.max_rows = kRows,
                           .max_tokens = MaxStepTokens(kRows, options.max_num_batched_tokens, 16),
                           .max_model_len = kLength,
                           .block_size = 16,
                           .groups = 3,
                           .page_count = options.page_count,
                           .vocab_size = kVocab};
  runner_options.max_in_flight = GetParam();
  runner_options.now_us = [] { return int64_t{0}; };
  CpuRunner runner(program, runner_options);
  StepProgress progress;
  Engine engine(options, runner, progress);
  for (uint64_t request = 1; request <= kRows; ++request) {
    engine.Apply(Ask(request, options), 1);
  }
  EngineOutput output;
  int64_t now = 1;
  const auto step = [&] {
    engine.RunOnce(++now, output);
    ASSERT_EQ(output.load.waiting_requests, 0u);
    ASSERT_EQ(output.load.running_rows, static_cast<uint32_t>(kRows));
  };
  engine.RunOnce(++now, output);
  for (int round = 0; round < 40 && output.load.waiting_requests > 0; ++round) {
    engine.RunOnce(++now, output);
  }
  for (int round = 0; round < 60; ++round) step();
  size_t tokens = 0;
  counting = true;
  for (int round = 0; round < 100; ++round) {
    engine.RunOnce(++now, output);
    for (const RouterOutput& router : output.routers) tokens += router.outputs.size();
  }
  counting = false;
  EXPECT_EQ(allocations.load(), 0);
  EXPECT_EQ(tokens, size_t{kRows} * 100);
  engine.CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, SteadyStateTest, testing::Values(1, 2));

// The counter itself counts.
TEST(SteadyStateTest, AnAllocationIsSeen) {
  allocations = 0;
  counting = true;
  std::vector<int> list;
  list.push_back(1);
  counting = false;
  EXPECT_EQ(allocations.exchange(0), 1);
  EXPECT_EQ(list[0], 1);
}

}  // namespace
}  // namespace quire::test
