// Workers' metrics behind one port: joined, each asked once, and none waited for.
#include "router/worker_metrics.h"
#include "router/recent_text.h"

#include <gtest/gtest.h>

#include "common/runtime/virtual_runtime.h"

namespace quire {
namespace {

// A worker's port: answers after `delay` with `text`, or fails.
class PlayedWorker final : public Fetcher {
 public:
  PlayedWorker(Executor& executor, int& asked, std::string text, absl::Status end)
      : executor_(executor), asked_(asked), text_(std::move(text)), end_(std::move(end)) {}

  std::unique_ptr<Fetch> Get(const std::string& path, Micros, FetchReceiver& receiver) override {
    EXPECT_EQ(path, "/metrics");
    ++asked_;
    executor_.PostAt(executor_.clock().Now() + kMicrosPerMilli, [this, &receiver] {
      if (end_.ok()) receiver.OnHead(200, 0);
      for (size_t at = 0; at < text_.size(); at += 100'000) {
        receiver.OnBody(std::string_view(text_).substr(at, 100'000));
      }
      receiver.OnEnd(end_);
    });
    return std::make_unique<Fetch>();
  }

 private:
  Executor& executor_;
  int& asked_;
  const std::string text_;
  const absl::Status end_;
};

class WorkerMetricsTest : public testing::Test {
 protected:
  void Add(std::string text, absl::Status end = absl::OkStatus()) {
    workers_.push_back(
        std::make_unique<PlayedWorker>(world_.executor(), asked_, std::move(text), std::move(end)));
  }
  void Start() {
    metrics_.AddCounter({"own_total", "Own."});
    all_ = std::make_unique<WorkerMetrics>(std::move(workers_), metrics_, world_.executor());
  }
  void Ask() {
    all_->Ask([this](std::string text) { answers_.push_back(std::move(text)); });
  }
  void Run() { world_.RunUntil(world_.clock().Now() + kMicrosPerSecond); }
  bool Shows(const std::string& line) {
    return ("\n" + answers_.back()).find("\n" + line + "\n") != std::string::npos;
  }

  VirtualWorld world_{1};
  Metrics metrics_;
  int asked_ = 0;
  std::vector<std::unique_ptr<Fetcher>> workers_;
  std::unique_ptr<WorkerMetrics> all_;
  std::vector<std::string> answers_;
};

TEST_F(WorkerMetricsTest, WhoeverAsksMeanwhileGetsTheSameAndEachWorkerIsAskedOnce) {
  for (const char* rows : {"3", "4"}) {
    Add("# HELP rows R.\n# TYPE rows gauge\nrows " + std::string(rows) + "\n");
  }
  Start();
  Ask();
  Ask();
  EXPECT_TRUE(answers_.empty());
  Run();
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0], answers_[1]);
  EXPECT_EQ(asked_, 2);
  EXPECT_TRUE(Shows("own_total 0"));
  EXPECT_TRUE(Shows("rows{engine=\"0\"} 3"));
  EXPECT_TRUE(Shows("rows{engine=\"1\"} 4"));
  Ask();
  Run();
  EXPECT_EQ(asked_, 4);
}

TEST_F(WorkerMetricsTest, AWorkerThatFailsOrSaysTooMuchIsLeftOutAndCounted) {
  const std::string head = "# HELP rows R.\n# TYPE rows gauge\nrows 1\n";
  Add(head, absl::UnavailableError("refused"));
  Add(head + std::string(kMaxWorkerMetricsBytes - head.size(), '\n'));
  Add(head + std::string(kMaxWorkerMetricsBytes + 1 - head.size(), '\n'));
  Start();
  Ask();
  Run();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_FALSE(Shows("rows{engine=\"0\"} 1"));
  EXPECT_TRUE(Shows("rows{engine=\"1\"} 1"));
  EXPECT_FALSE(Shows("rows{engine=\"2\"} 1"));
  EXPECT_TRUE(Shows("quire_router_worker_metrics_failures_total 2"));
}

// Whoever asks often, which needs no key, costs the loop no more than that.
TEST(RecentText, IsMadeForEachWhoAsksSlowlyAndNoOftenerThanItsRate) {
  VirtualWorld world(1);
  int made = 0;
  RecentText text(world.clock(), std::make_shared<MemoryAccount>(size_t{1} << 20),
                  [&](const RecentText::Made& done) { done(std::to_string(++made)); });
  std::string got;
  const auto ask = [&] {
    text.Ask([&](const std::shared_ptr<const std::string>& answer) { got = *answer; });
  };
  for (int i = 1; i <= 100; ++i) {
    ask();
    EXPECT_EQ(got, std::to_string(i)) << "as it is now";
    world.RunUntil(world.clock().Now() + kMicrosPerSecond / 10);
  }
  made = 0;
  for (int i = 0; i < 10'000; ++i) {
    ask();
    EXPECT_EQ(got, std::to_string(made)) << "the last one, at least";
    world.RunUntil(world.clock().Now() + kMicrosPerMilli);
  }
  EXPECT_LE(made, 10 * kMadePerSecond + 2 * kMadePerSecond);
  EXPECT_GE(made, 10 * kMadePerSecond);
}

// However many hold on to one text, it counts once; one that finds no room is nullptr.
TEST(RecentText, CountsEachTextOnceForAllWhoReadIt) {
  VirtualWorld world(1);
  const auto account = std::make_shared<MemoryAccount>(size_t{5'000});
  RecentText text(world.clock(), account,
                  [&](const RecentText::Made& done) { done(std::string(2'000, 'x')); });
  std::vector<std::shared_ptr<const std::string>> readers;
  const auto ask = [&] {
    text.Ask([&](std::shared_ptr<const std::string> answer) { readers.push_back(answer); });
  };
  ask();
  ask();
  const size_t two = account->bytes();
  EXPECT_GE(two, 4'000u);
  ask();
  EXPECT_EQ(readers.back(), nullptr) << "a third has no room";
  readers.clear();
  ask();
  EXPECT_NE(readers.back(), nullptr);
  EXPECT_LE(account->bytes(), two);
}

TEST_F(WorkerMetricsTest, WithoutWorkersItIsTheRoutersOwnAndOthersCountFromTheNextTimeOn) {
  Start();
  Ask();
  Run();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(Shows("own_total 0"));
  std::vector<WorkerMetrics::Worker> others;
  others.push_back(
      {"7", std::make_unique<PlayedWorker>(world_.executor(), asked_, "# TYPE x gauge\nx 1\n",
                                           absl::OkStatus())});
  all_->Replace(std::move(others));
  Ask();
  Run();
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_NE(answers_.back().find("x{engine=\"7\"} 1"), std::string::npos) << answers_.back();
}

TEST_F(WorkerMetricsTest, NothingIsCalledAfterItsEnd) {
  Add("# TYPE rows gauge\nrows 1\n");
  Start();
  Ask();
  // Behind the worker's last word, and before the turn in which the answer is made.
  world_.executor().PostAt(world_.clock().Now() + kMicrosPerMilli, [this] { all_.reset(); });
  Run();
  EXPECT_EQ(all_, nullptr);
  EXPECT_TRUE(answers_.empty());
}

}  // namespace
}  // namespace quire
