// The drivers: a real thread that wakes, tells and stops, and virtual time.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

#include "common/runtime/asio_executor.h"
#include "common/runtime/virtual_runtime.h"
#include "tests/worker/engine/engine_harness.h"
#include "worker/engine/engine_thread.h"
#include "worker/engine/virtual_engine_driver.h"

namespace quire::test {
namespace {

SubmitCommand Ask(uint64_t request, int32_t max_tokens) {
  SubmitCommand command;
  command.router = RouterInstance(1);
  command.submit.key = {RequestNumber(request), Attempt(1)};
  command.submit.prompt_ids = {1, 2, 3};
  command.submit.choices.resize(1);
  command.submit.sampling.max_tokens = max_tokens;
  command.submit.sampling.ignore_eos = true;
  command.submit.model_id = "tag";
  return command;
}

size_t CountTokens(const std::vector<EngineOutput>& outputs, size_t& ended) {
  size_t tokens = 0;
  for (const EngineOutput& output : outputs) {
    for (const RouterOutput& router : output.routers) {
      for (const Output& out : router.outputs) tokens += out.ids.size();
      ended += router.ended.size();
    }
  }
  return tokens;
}

TEST(EngineThreadTest, ServesCommandsFromOtherThreadsAndStops) {
  const EngineOptions options = SmallEngine().engine;
  TagRunner runner(RunnerOptionsFor(options));
  StepProgress progress;
  Engine engine(options, runner, progress);
  RealClock clock;
  std::mutex mutex;
  std::condition_variable told;
  bool ready = false;
  EngineThread thread(engine, progress, clock, [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    ready = true;
    told.notify_one();
  });
  thread.Start();
  size_t tokens = 0;
  size_t ended = 0;
  std::vector<EngineOutput> outputs;
  for (uint64_t request = 1; request <= 20; ++request) {
    ASSERT_TRUE(thread.TryPush(Ask(request, 50)));
  }
  while (ended < 20) {
    std::unique_lock<std::mutex> lock(mutex);
    told.wait(lock, [&] { return ready; });
    ready = false;
    lock.unlock();
    thread.TakeOutputs(outputs);
    tokens += CountTokens(outputs, ended);
  }
  EXPECT_EQ(tokens, 1000u);
  EXPECT_GT(progress.last_step_end_us.load(), 0);
  thread.Stop();
  thread.Stop();
}

TEST(EngineThreadTest, AFullQueueIsAResultAndLeavesRoomForOtherCommands) {
  const EngineOptions options = SmallEngine().engine;
  TagRunner runner(RunnerOptionsFor(options));
  StepProgress progress;
  Engine engine(options, runner, progress);
  RealClock clock;
  EngineThread thread(engine, progress, clock, [] {});
  for (size_t i = 0; i < kMaxQueuedSubmits; ++i) ASSERT_TRUE(thread.TryPush(Ask(i + 1, 1)));
  EXPECT_FALSE(thread.TryPush(Ask(1 << 20, 1)));
  EXPECT_TRUE(thread.TryPush(RouterLostCommand{RouterInstance(1)}));
}

TEST(OutputQueueTest, ASlowTakerGetsMergedOutputsInOrder) {
  OutputQueue queue;
  EngineOutput first;
  EXPECT_TRUE(queue.Push(first));
  for (uint64_t i = 0; i < 2 * kMaxQueuedOutputs; ++i) {
    EngineOutput output;
    output.event_seq = i;
    output.routers.resize(1);
    output.routers[0].router = RouterInstance(i);
    EXPECT_FALSE(queue.Push(output));
  }
  std::vector<EngineOutput> outputs;
  queue.Take(outputs);
  EXPECT_EQ(outputs.size(), kMaxQueuedOutputs);
  uint64_t next = 0;
  for (const EngineOutput& output : outputs) {
    for (const RouterOutput& router : output.routers) EXPECT_EQ(router.router.value(), next++);
  }
  EXPECT_EQ(next, 2 * kMaxQueuedOutputs);
  EXPECT_EQ(outputs.back().event_seq, 2 * kMaxQueuedOutputs - 1);
  EXPECT_TRUE(queue.Push(first));
}

// What the taker hands back is what the engine writes into next.
TEST(OutputQueueTest, MemoryGoesRound) {
  OutputQueue queue;
  EngineOutput output;
  output.routers.resize(1);
  output.routers[0].outputs.resize(3);
  const Output* memory = output.routers[0].outputs.data();
  queue.Push(output);
  EXPECT_TRUE(output.routers.empty());
  std::vector<EngineOutput> outputs;
  queue.Take(outputs);
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].routers[0].outputs.data(), memory);
  queue.Take(outputs);
  EXPECT_TRUE(outputs.empty());
  queue.Push(output);
  ASSERT_EQ(output.routers.size(), 1u);
  EXPECT_EQ(output.routers[0].outputs.data(), memory);
}

TEST(VirtualEngineDriverTest, StepsTakeVirtualTimeAndAFrozenOneDoesNothing) {
  const EngineOptions options = SmallEngine().engine;
  TagRunnerOptions runner_options = RunnerOptionsFor(options);
  runner_options.step_micros = [](int64_t) { return 10'000; };
  TagRunner runner(runner_options);
  StepProgress progress;
  Engine engine(options, runner, progress);
  VirtualWorld world(1);
  size_t tokens = 0;
  size_t ended = 0;
  VirtualEngineDriver* taken_from = nullptr;
  std::vector<EngineOutput> outputs;
  VirtualEngineDriver driver(engine, progress, world.executor(), [&] {
    taken_from->TakeOutputs(outputs);
    tokens += CountTokens(outputs, ended);
  });
  taken_from = &driver;
  driver.Start();
  world.RunUntil(world.clock().Now() + 100'000);
  ASSERT_TRUE(driver.TryPush(Ask(1, 30)));
  world.RunUntil(world.clock().Now() + 105'000);
  EXPECT_EQ(tokens, 10u);
  driver.SetFrozen(true);
  world.RunUntil(world.clock().Now() + 5'000'000);
  EXPECT_EQ(tokens, 10u);
  EXPECT_GT(progress.running_since_us.load(), 0);
  driver.SetFrozen(false);
  world.RunUntil(world.clock().Now() + 500'000);
  EXPECT_EQ(tokens, 30u);
  EXPECT_EQ(ended, 1u);
}

}  // namespace
}  // namespace quire::test
