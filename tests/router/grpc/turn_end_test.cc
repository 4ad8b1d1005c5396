// What is left to be done at the end of a turn of the loop.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/grpc/services.h"
#include "tests/router/support/fake_pipeline.h"

namespace quire {
namespace {

class CountingExecutor final : public Executor {
 public:
  explicit CountingExecutor(Executor& executor) : executor_(executor) {}
  void Post(std::function<void()> work) override {
    ++posted;
    executor_.Post(std::move(work));
  }
  TimerId PostAt(Micros due, std::function<void()> work) override {
    return executor_.PostAt(due, std::move(work));
  }
  bool Cancel(TimerId timer) override { return executor_.Cancel(timer); }
  const Clock& clock() const override { return executor_.clock(); }

  int posted = 0;

 private:
  Executor& executor_;
};

struct TurnEndTest : testing::Test {
  void Run() { world.RunUntil(world.clock().Now()); }

  VirtualWorld world{1};
  CountingExecutor executor{world.executor()};
  FakePipeline pipeline{world.executor()};
  VirtualBackground background{world.executor(), 100};
  NullLogger log;
  Metrics metrics;
  EdgeMetrics counters{metrics};
  GrpcServices services{{executor, pipeline, background, world.rng(), counters, log}, {}};
  GrpcHost host = MakeGrpcHost(services);
  std::string told;
};

TEST_F(TurnEndTest, WhatCallsWriteLeavesInTheSameTurn) {
  for (const char* call : {"a", "b"}) {
    host.AfterTurn([this, call] {
      told += call;
      host.Flush([this] { told += "."; });
    });
  }
  Run();
  EXPECT_EQ(told, "ab..");
  EXPECT_EQ(executor.posted, 1);
}

TEST_F(TurnEndTest, WhatComesMeanwhileHasATurnOfItsOwn) {
  host.AfterTurn([this] {
    host.AfterTurn([this] { told += "next"; });
    host.Flush([this] {
      told += "flush ";
      host.Flush([this] { told += " flush"; });
    });
  });
  Run();
  EXPECT_EQ(told, "flush next flush");
  EXPECT_EQ(executor.posted, 2);
}

}  // namespace
}  // namespace quire
