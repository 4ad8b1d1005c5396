// Workers that come and go while requests run.
#include "tests/router/pipeline/pipeline_fixture.h"

namespace quire {
namespace {

class DiscoveryPipelineTest : public PipelineTest {
 protected:
  // A router that is told of no worker yet.
  void StartEmpty(int workers, RouterLimits limits = {}) {
    PipelineOptions options;
    options.limits = limits;
    StartRouter(options);
    for (int i = 0; i < workers; ++i) AddWorker();
  }
  void Name(std::vector<std::string> targets) {
    pipeline_->WorkersNamed("test", std::move(targets));
    Run(kSecond);
  }
  std::string TargetOf(int worker) const { return workers_[worker]->options().target; }
  uint32_t Ready() const {
    const std::vector<ModelEntry> models = pipeline_->Models();
    return models.empty() ? 0 : models.front().workers_ready;
  }
};

TEST_F(DiscoveryPipelineTest, WorkersAreDialledWhenTheyAreNamed) {
  StartEmpty(2);
  EXPECT_FALSE(pipeline_->Ready());
  Name({TargetOf(0)});
  EXPECT_EQ(Ready(), 1u);
  Name({TargetOf(0), TargetOf(1)});
  EXPECT_EQ(Ready(), 2u);
  EXPECT_TRUE(RunOne(Ask("hello")).usage.has_value());
  pipeline_->CheckInvariants();
}

TEST_F(DiscoveryPipelineTest, AWorkerThatIsNamedNoMoreEndsItsStreamsFirst) {
  StartEmpty(1);
  workers_[0]->options().step = 100 * kMicrosPerMilli;
  Name({TargetOf(0)});
  RecordingSink sink;
  GenerateRequest ask = Ask("hello", 900);
  pipeline_->Start(std::move(ask), &sink);
  Run(kSecond);
  Name({});
  Run(80 * kSecond);
  EXPECT_FALSE(sink.Over()) << "it runs for 90 s";
  EXPECT_EQ(Ready(), 1u);
  Run(20 * kSecond);
  EXPECT_TRUE(sink.usage.has_value());
  EXPECT_EQ(Ready(), 1u) << "idle for less than a minute";
  Run(61 * kSecond);
  EXPECT_EQ(Ready(), 0u);
  pipeline_->CheckInvariants();
}

TEST_F(DiscoveryPipelineTest, PlacesOfWorkersThatWentAreTakenAgain) {
  RouterLimits limits;
  limits.max_workers = 2;
  StartEmpty(6, limits);
  for (int i = 0; i + 1 < 6; ++i) {
    workers_[i]->Down();
    Name({TargetOf(i), TargetOf(i + 1)});
    EXPECT_TRUE(RunOne(Ask("hello")).usage.has_value()) << i;
    pipeline_->CheckInvariants();
  }
}

TEST_F(DiscoveryPipelineTest, WorkersOverTheLimitAreLeftOutAndTold) {
  RouterLimits limits;
  limits.max_workers = 2;
  StartEmpty(3, limits);
  const auto told = [this](const std::string& count) {
    return metrics_.Render().find("quire_router_workers_left_out " + count + "\n") !=
           std::string::npos;
  };
  Name({TargetOf(0), TargetOf(1)});
  EXPECT_TRUE(told("0"));
  Name({TargetOf(0), TargetOf(1), TargetOf(2)});
  EXPECT_TRUE(told("1"));
  EXPECT_EQ(Ready(), 2u);
}

TEST_F(DiscoveryPipelineTest, AModelStaysKnownWhenItsLastWorkerIsNamedNoMore) {
  StartEmpty(2);
  Name({TargetOf(0)});
  workers_[0]->Down();
  Run(kSecond);
  Name({});
  Run(2 * kSecond);
  EXPECT_EQ(Ready(), 0u);
  EXPECT_EQ(pipeline_->Models().size(), 1u);
  // A request waits for the worker that is about to come.
  RecordingSink sink;
  pipeline_->Start(Ask("hello"), &sink);
  Run(kMicrosPerSecond / 2);
  Name({TargetOf(1)});
  Run(5 * kSecond);
  EXPECT_TRUE(sink.usage.has_value());
}

}  // namespace
}  // namespace quire
