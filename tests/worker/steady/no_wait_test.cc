// The engine's thread waits for nobody: not for a taker that never comes, not for commands that
// come without end.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/runtime/asio_executor.h"
#include "tests/support/tag_runner.h"
#include "tests/worker/steady/steady_world.h"
#include "worker/engine/engine_thread.h"

namespace quire::test {
namespace {

constexpr int32_t kRows = 8;

// Tells how many steps have begun.
class CountingProgram final : public WrappedProgram {
 public:
  using WrappedProgram::WrappedProgram;
  void Run(const kernels::StepBatch& batch) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++begun_;
    }
    changed_.notify_all();
    WrappedProgram::Run(batch);
  }

  void WaitForStep(int64_t step) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return begun_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t begun_ = 0;
};

class NoWaitTest : public testing::Test {
 protected:
  NoWaitTest() {
    options_.rows = kRows;
    options_.cache_kinds = {{0, 1}};
    options_.page_count = kRows * (options_.max_model_len / 16 + 1);
    tags_ = std::make_unique<TagProgram>(
        CacheShape{options_.block_size, options_.page_count, options_.cache_kinds},
        options_.vocab_size);
    program_ = std::make_unique<CountingProgram>(*tags_);
    world_ = std::make_unique<SteadyWorld>(*program_, options_);
    engine_ = std::make_unique<EngineThread>(*world_->engine, world_->progress, clock_, [] {});
  }
  void Push(uint64_t request) {
    SubmitCommand command = SteadyAsk(request, options_);
    std::vector<TokenId> prompt(command.submit.prompt_ids.begin(), command.submit.prompt_ids.end());
    prompt.resize(4);
    command.submit.prompt_ids = std::move(prompt);
    command.submit.initial_window = 0;
    ASSERT_TRUE(engine_->TryPush(std::move(command)));
  }

  SteadyOptions options_;
  std::unique_ptr<TagProgram> tags_;
  std::unique_ptr<CountingProgram> program_;
  std::unique_ptr<SteadyWorld> world_;
  const RealClock clock_;
  std::unique_ptr<EngineThread> engine_;
};

// All rows run to their ends with nobody there to hear of it; then everything is still there, in
// order, in no more outputs than may wait.
TEST_F(NoWaitTest, ATakerThatDoesNotComeStopsNoStep) {
  for (uint64_t request = 1; request <= kRows; ++request) Push(request);
  engine_->Start();
  const int64_t last = options_.max_model_len - 4;
  ASSERT_GT(last, 2 * static_cast<int64_t>(kMaxQueuedOutputs));
  program_->WaitForStep(last);
  engine_->Stop();  // after the step that is running
  std::vector<EngineOutput> outputs;
  engine_->TakeOutputs(outputs);
  EXPECT_EQ(outputs.size(), kMaxQueuedOutputs);
  std::map<uint64_t, uint64_t> next;
  for (const EngineOutput& output : outputs) {
    for (const RouterOutput& router : output.routers) {
      for (const Output& told : router.outputs) {
        EXPECT_EQ(told.first_index, next[told.key.request.value()]++);
      }
    }
  }
  EXPECT_EQ(next.size(), static_cast<size_t>(kRows));
  for (const auto& [request, count] : next) EXPECT_GE(count, static_cast<uint64_t>(last - 1));
}

// Commands are taken between steps, all that are there, and a step follows.
TEST_F(NoWaitTest, CommandsWithoutEndStopNoStep) {
  Push(1);
  engine_->Start();
  for (int64_t step = 1; step < 200; ++step) {
    for (int i = 0; i < 50; ++i) {
      engine_->TryPush(GrantCommand{RouterInstance(9), {{RequestNumber(1), Attempt(1)}, 0, 1}});
    }
    program_->WaitForStep(step);
  }
  engine_->Stop();
  EXPECT_GE(world_->progress.steps_total.load(), 198u);
}

}  // namespace
}  // namespace quire::test
