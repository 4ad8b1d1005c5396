// After its warm-up a step of rows that run allocates nothing: pass, packet, row state, kernels,
// sampling, commit, stop rules, publication of the blocks that fill up, cache events, outputs and
// their way to the taker's thread.
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "common/runtime/asio_executor.h"
#include "tests/support/tag_grammar.h"
#include "tests/support/tag_runner.h"
#include "tests/worker/steady/allocation_counter.h"
#include "tests/worker/steady/steady_world.h"
#include "worker/engine/engine_thread.h"
#include "worker/model/model.h"

namespace quire::test {
namespace {

// The tag model's own arithmetic is a fake's: what it allocates is not counted.
class ExemptProgram final : public WrappedProgram {
 public:
  using WrappedProgram::WrappedProgram;
  void Run(const kernels::StepBatch& batch) override {
    const ExemptScope exempt;
    if (before_run) before_run();
    WrappedProgram::Run(batch);
  }

  std::function<void()> before_run;
};

struct TagWorld {
  explicit TagWorld(int max_in_flight, int64_t pages_per_row = 0, MaskPool* masks = nullptr) {
    options.max_in_flight = max_in_flight;
    options.masks = masks;
    // No token writes its last letter, so that it never ends.
    if (masks != nullptr) {
      options.grammar = TagGrammar(ConstraintOf(ConstraintKind::kRegex, "([a-z]|[0-9]{2})*Z"));
    }
    options.cache_kinds = {{0, 1}, {33, 2}};
    if (pages_per_row == 0) pages_per_row = (options.max_model_len / 16 + 1) * 3;
    options.page_count = options.rows * pages_per_row;
    tags = std::make_unique<TagProgram>(
        CacheShape{options.block_size, options.page_count, options.cache_kinds},
        options.vocab_size);
    program = std::make_unique<ExemptProgram>(*tags);
    world = std::make_unique<SteadyWorld>(*program, options);
  }
  SteadyOptions options;
  std::unique_ptr<TagProgram> tags;
  std::unique_ptr<ExemptProgram> program;
  std::unique_ptr<SteadyWorld> world;
};

class SteadyStateTest : public testing::TestWithParam<int> {};

TEST_P(SteadyStateTest, AStepOfRunningRowsAllocatesNothing) {
  TagWorld tag(GetParam());
  SteadyWorld& world = *tag.world;
  world.Submit();
  world.WarmUp(60);
  world.tokens = world.tops = world.stored = 0;
  const int64_t allocations = CountAllocations([&] {
    for (int round = 0; round < 100; ++round) world.Step();
  });
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(world.tokens, size_t{256} * 100);
  EXPECT_GT(world.tops, 1000u);
  EXPECT_GT(world.stored, 1000u);  // blocks filled up and were published
  world.engine->CheckInvariants();
}

// On the engine's thread and on those that compute masks; the library's own memory is not counted.
TEST_P(SteadyStateTest, NeitherDoesOneOfConstrainedRows) {
  for (const int threads : {0, 2}) {
    MaskPool masks({.threads = threads, .vocab_size = SteadyOptions().vocab_size});
    TagWorld tag(GetParam(), 0, &masks);
    SteadyWorld& world = *tag.world;
    world.Submit();
    world.WarmUp(60);
    world.tokens = 0;
    const int64_t allocations = CountAllocations([&] {
      for (int round = 0; round < 100; ++round) world.Step();
    });
    EXPECT_EQ(allocations, 0);
    EXPECT_GE(world.tokens, size_t{256} * 50);
    EXPECT_EQ(world.engine->totals().constrained_rows,
              world.engine->totals().generated_tokens - world.engine->totals().discarded_tokens);
    EXPECT_EQ(masks.size(), 256u);
  }
}

// Rows that leave change the others' places in plans, results and outputs.
TEST_P(SteadyStateTest, RowsThatLeaveCostTheOthersNothing) {
  TagWorld tag(GetParam());
  SteadyWorld& world = *tag.world;
  world.Submit();
  world.WarmUp(60);
  const int64_t allocations = CountAllocations([&] {
    for (uint64_t round = 0; round < 100; ++round) {
      if (round % 2 == 0) {  // an end is told and booked, which may cost something
        const ExemptScope exempt;
        const uint64_t request = 1 + round * 37 % 256;
        const AttemptKey key{RequestNumber(request), Attempt(1)};
        world.engine->Apply(CancelCommand{SteadyAsk(request, world.options).router, {key}},
                            world.now_us);
      }
      world.Step();
    }
  });
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(world.output.load.running_rows, 256u - 50u);
}

// Where every page is cached, each block that is begun takes another's place.
TEST_P(SteadyStateTest, NeitherDoesOneThatEvicts) {
  TagWorld tag(GetParam(), 28);
  SteadyWorld& world = *tag.world;
  for (uint64_t request = 1; request <= 512; ++request) {
    SubmitCommand command = SteadyAsk(1000 + request, world.options);
    command.submit.sampling.max_tokens = 150;
    command.submit.sampling.min_tokens = 0;
    command.submit.initial_window = 0;
    world.engine->Apply(std::move(command), world.now_us);
  }
  do {
    world.Step();
  } while (world.output.load.running_rows > 0);
  world.Submit();
  world.WarmUp(50);
  world.removed = 0;
  const int64_t allocations = CountAllocations([&] {
    for (int round = 0; round < 60; ++round) world.Step();
  });
  EXPECT_EQ(allocations, 0);
  EXPECT_GT(world.removed, 500u);
  EXPECT_EQ(world.engine->totals().scheduler.preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(StepsInFlight, SteadyStateTest, testing::Values(1, 2));

// The kernels too, on models that between them have every weight type, window and norm.
class SteadyKernelsTest : public testing::TestWithParam<const char*> {};

TEST_P(SteadyKernelsTest, AStepAllocatesNothing) {
  std::string path = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/" + GetParam();
  if (std::filesystem::exists(path + "/model.gguf")) path += "/model.gguf";
  const auto model = model::LoadModel(path, {.with_text = false});
  ASSERT_TRUE(model.ok()) << model.status();
  const kernels::StepProgram& program = (*model)->program;
  std::string error;
  const auto backend = kernels::MakeCpuBackend({.threads = 2}, error);
  ASSERT_NE(backend, nullptr) << error;
  SteadyOptions options;
  options.max_model_len = 96;
  options.max_prompt = 12;
  options.vocab_size = program.vocab_size;
  kernels::ProgramOptions program_options;
  program_options.kv = kernels::DealLayers(program.layer_windows, {.block_size = options.block_size,
                                                                   .kv_heads = program.kv_heads,
                                                                   .head_dim = program.head_dim});
  options.cache_kinds = CacheKindsOf(program_options.kv);
  options.page_count =
      int64_t{options.rows} * 7 * static_cast<int64_t>(program.layer_windows.size());
  program_options.page_count = options.page_count;
  program_options.max_rows = program_options.max_samples = options.rows;
  const auto loaded = backend->Load(program, program_options);
  SteadyWorld world(*loaded, options);
  world.Submit();
  world.WarmUp(10);
  world.tokens = world.tops = 0;
  const int64_t allocations = CountAllocations([&] {
    for (int round = 0; round < 40; ++round) world.Step();
  });
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(world.tokens, size_t{256} * 40);
  EXPECT_GT(world.tops, 100u);
}

INSTANTIATE_TEST_SUITE_P(Models, SteadyKernelsTest,
                         testing::Values("gemma3-pattern", "gguf-llama-all-types"));

// With the engine on its thread: waking up, handing outputs over, ringing the taker's loop.
class SteadyThreadTest : public testing::Test {
 protected:
  static constexpr int64_t kDeep = 24;  // outputs that wait for the taker at most

  SteadyThreadTest() {
    tag_.program->before_run = [this] { WaitForTaker(); };
    bell_ = executor_.MakeBell([this] { TakeOutputs(); });
    engine_ =
        std::make_unique<EngineThread>(*tag_.world->engine, tag_.world->progress, clock_, bell_);
    for (uint64_t request = 1; request <= 256; ++request) {
      SubmitCommand command = SteadyAsk(request, tag_.world->options);
      command.submit.initial_window = 0;
      EXPECT_TRUE(engine_->TryPush(std::move(command)));
    }
    taker_ = std::thread([this] {
      const ExemptScope exempt;
      executor_.Run();
    });
  }
  ~SteadyThreadTest() override {
    engine_->Stop();
    executor_.Stop();
    taker_.join();
  }

  // On the engine's thread: a model so slow that no more than kDeep outputs ever wait.
  void WaitForTaker() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return begun_ - taken_ <= kDeep; });
  }
  // On the taker's: in time, or as late as it may.
  void TakeOutputs() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (late_) changed_.wait(lock, [this] { return begun_ - taken_ >= kDeep; });
    lock.unlock();
    engine_->TakeOutputs(outputs_);
    lock.lock();
    for (const EngineOutput& output : outputs_) {
      taken_ += output.stepped ? 1 : 0;
      for (const RouterOutput& router : output.routers) tokens_ += router.outputs.size();
    }
    changed_.notify_all();
  }
  void WaitUntilTaken(int64_t steps) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return taken_ >= steps; });
  }

  TagWorld tag_{1};
  AsioExecutor executor_;
  const RealClock clock_;
  std::function<void()> bell_;
  std::unique_ptr<EngineThread> engine_;
  std::thread taker_;
  std::vector<EngineOutput> outputs_;  // of the taker
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t begun_ = 0;
  int64_t taken_ = 0;
  size_t tokens_ = 0;
  bool late_ = true;
};

TEST_F(SteadyThreadTest, TheHandOverAllocatesNothing) {
  engine_->Start();
  WaitUntilTaken(200);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    late_ = false;
  }
  WaitUntilTaken(250);
  const int64_t allocations = CountAllocations([&] {
    const ExemptScope exempt;
    WaitUntilTaken(400);
  });
  EXPECT_EQ(allocations, 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_GT(tokens_, size_t{256} * 150);
}

// The counter itself counts.
TEST(AllocationCounterTest, AnAllocationIsSeen) {
  std::vector<int> list;
  EXPECT_EQ(CountAllocations([&] { list.push_back(1); }), 1);
  EXPECT_EQ(CountAllocations([&] {
              const ExemptScope exempt;
              list.push_back(2);
            }),
            0);
  EXPECT_EQ(list.size(), 2u);
}

}  // namespace
}  // namespace quire::test
