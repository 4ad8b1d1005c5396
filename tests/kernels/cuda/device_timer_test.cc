// The timer of benches and of the tuner: what it reports is the device's time alone.
#include "kernels/cuda/runtime/device_timer.h"

#include <gtest/gtest.h>

#include "kernels/cuda/ops/rows/copy_rows.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

using runtime::TimeOnDevice;

// A kernel on a device whose clock each launch moves by a known time.
class CudaDeviceTimer : public testing::Test {
 protected:
  void SetUp() override {
    if (!bed_.runtime().counts()) GTEST_SKIP() << "a GPU's clock moves by itself";
    params_.from = bed_.Put(std::vector<unsigned char>(16, 0x5a));
    params_.to = bed_.New<unsigned char>(16);
    params_.rows = 1;
    params_.row_bytes = 16;
  }
  runtime::Error Launch() { return LaunchCopyRows(bed_.runtime(), bed_.stream(), params_); }
  uint64_t launches() {
    uint64_t all = 0;
    for (const auto& [kernel, counters] : bed_.runtime().counters()) all += counters.launches;
    return all;
  }

  DeviceBed bed_;
  CopyRowsParams params_;
};

TEST_F(CudaDeviceTimer, ReportsKernelTimesWithin3Percent) {
  for (const double taken : {36e-6, 0.4e-3, 0.02, 0.3}) {
    bed_.runtime().SetTimes(taken, 0.0);
    double seconds = 0.0;
    bed_.Check(TimeOnDevice(
        bed_.runtime(), bed_.stream(), {}, [&](int) { return Launch(); }, &seconds));
    EXPECT_NEAR(seconds, taken, 0.03 * taken);
  }
}

TEST_F(CudaDeviceTimer, ReplaysShortWorkOftenAndLongWorkOnce) {
  EXPECT_EQ(runtime::timer::ReplaysFor(0.0), runtime::kMostReplays);
  EXPECT_EQ(runtime::timer::ReplaysFor(1e-6), runtime::kMostReplays);
  EXPECT_EQ(runtime::timer::ReplaysFor(10e-6), 200);
  EXPECT_EQ(runtime::timer::ReplaysFor(runtime::kLongSeconds), runtime::kLeastReplays);
  EXPECT_EQ(runtime::timer::ReplaysFor(runtime::kLongSeconds * 1.01), 1);
}

TEST_F(CudaDeviceTimer, EachCopyOfTheWorkIsInTheGraph) {
  bed_.runtime().SetTimes(0.25, 0.0);
  std::vector<int> queued;
  double seconds = 0.0;
  const auto work = [&](int copy) {
    queued.push_back(copy);
    return Launch();
  };
  const runtime::DeviceTiming timing{.copies = 3, .rounds = 1};
  bed_.Check(TimeOnDevice(bed_.runtime(), bed_.stream(), timing, work, &seconds));
  EXPECT_EQ(queued, (std::vector<int>{0, 0, 1, 2}));
  EXPECT_EQ(launches(), 1 + 3 * 3u) << "uncaptured, two that warm up, one round";
  EXPECT_DOUBLE_EQ(seconds, 0.25) << "of one copy";
}

TEST_F(CudaDeviceTimer, WorkThatFailsLeavesNoCaptureBehind) {
  double seconds = 0.0;
  int calls = 0;
  const auto second_fails = [&](int) { return ++calls == 2 ? runtime::Error("no") : Launch(); };
  for (int round = 0; round < 2; ++round) {
    calls = 0;
    EXPECT_EQ(TimeOnDevice(bed_.runtime(), bed_.stream(), {}, second_fails, &seconds), "no");
  }
  bed_.Check(TimeOnDevice(
      bed_.runtime(), bed_.stream(), {}, [&](int) { return Launch(); }, &seconds));
}

TEST_F(CudaDeviceTimer, EventsThatWereNotReachedSaySo) {
  runtime::EventId from{}, to{};
  bed_.Check(bed_.runtime().CreateTimedEvent(&from));
  bed_.Check(bed_.runtime().CreateTimedEvent(&to));
  double seconds = 0.0;
  EXPECT_EQ(bed_.runtime().Elapsed(from, to, &seconds), "read events: one was not reached");
  bed_.Check(bed_.runtime().DestroyEvent(from));
  EXPECT_EQ(bed_.runtime().Elapsed(from, to, &seconds), "no such event");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
