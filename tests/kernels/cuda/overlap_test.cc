// Kernels that begin before those in front of them have ended: what they use without having waited
// is found in every run, in streams and in graphs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/emulate/emulated_runtime.h"
#include "tests/kernels/cuda/planted/planted.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::EmulatedRuntime;
using runtime::GraphId;
using runtime::StreamId;

// A writer and what follows it, on one stream.
class OverlapBed {
 public:
  explicit OverlapBed(uint64_t seed) : runtime_(seed) {
    EXPECT_EQ(runtime_.CreateStream(&stream_), "");
    params_.in = New(1.0f);
    params_.out = New(3.0f);
    params_.partial = New(0.0f);
    EXPECT_EQ(runtime_.Synchronize(stream_), "");
  }

  void Launch(Follower kind) {
    EXPECT_EQ(runtime_.Launch(stream_, InARow(kind), runtime::ShapeOf(1, 1, 0, params_)), "");
  }
  EmulatedRuntime& runtime() { return runtime_; }
  StreamId stream() const { return stream_; }
  const PlantedParams& params() const { return params_; }
  // The first violation of all that was launched.
  std::string Finish() { return runtime_.Synchronize(stream_); }

 private:
  float* New(float value) {
    void* at = nullptr;
    EXPECT_EQ(runtime_.Allocate(kPlantedThreads * sizeof(float), &at), "");
    for (int i = 0; i < kPlantedThreads; ++i) static_cast<float*>(at)[i] = value;
    return static_cast<float*>(at);
  }

  EmulatedRuntime runtime_;
  StreamId stream_{};
  PlantedParams params_;
};

constexpr uint64_t kSeeds = 10;
constexpr const char* kNotWaited = "of a kernel before it that it has not waited for";
constexpr Follower kWrong[] = {Follower::kReadsEarly, Follower::kWritesEarly};

TEST(CudaOverlap, WhatIsUsedBeforeTheWaitIsFoundInEveryRun) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    OverlapBed right(seed);
    right.Launch(Follower::kWriter);
    right.Launch(Follower::kRight);
    EXPECT_EQ(right.Finish(), "");
    EXPECT_EQ(right.params().out[5], 5.0f);
    for (const Follower kind : kWrong) {
      OverlapBed wrong(seed);
      wrong.Launch(Follower::kWriter);
      wrong.Launch(kind);
      EXPECT_NE(wrong.Finish().find(kNotWaited), std::string::npos) << static_cast<int>(kind);
    }
  }
}

// A kernel between them that waits does not help: it may have begun, and let the next begin, while
// the writer was still running.
TEST(CudaOverlap, AKernelTwoStepsBehindIsNotOvertaken) {
  for (const Follower kind : kWrong) {
    OverlapBed bed(3);
    bed.Launch(Follower::kWriter);
    bed.Launch(Follower::kRight);
    bed.Launch(kind);
    EXPECT_NE(bed.Finish().find(kNotWaited), std::string::npos);
  }
  OverlapBed right(3);
  for (int i = 0; i < 3; ++i) {
    right.Launch(Follower::kWriter);
    right.Launch(Follower::kRight);
  }
  EXPECT_EQ(right.Finish(), "");
}

TEST(CudaOverlap, AKernelThatNeverWaitsIsFoundThoughItUsesNothing) {
  for (const auto checks : {emulate::Checks::kAll, emulate::Checks::kNone}) {
    EmulatedRuntime runtime(1, checks);
    StreamId stream{};
    ASSERT_EQ(runtime.CreateStream(&stream), "");
    OverlapBed memory(1);
    ASSERT_EQ(runtime.Launch(stream, InARow(Follower::kNeverWaits),
                             runtime::ShapeOf(1, 1, 0, memory.params())),
              "");
    EXPECT_NE(runtime.Synchronize(stream).find("without having waited"), std::string::npos);
  }
}

// A copy runs when all before it has ended; so does what follows the host's own wait.
TEST(CudaOverlap, NothingOverlapsAcrossACopyOrAWaitOfTheHost) {
  for (const bool copy : {false, true}) {
    OverlapBed bed(4);
    float out = 0.0f;
    bed.Launch(Follower::kWriter);
    if (copy) {
      EXPECT_EQ(bed.runtime().Copy(bed.stream(), &out, bed.params().out, sizeof(out)), "");
    } else {
      EXPECT_EQ(bed.Finish(), "");
    }
    bed.Launch(Follower::kReadsEarly);
    EXPECT_EQ(bed.Finish(), "");
    EXPECT_EQ(bed.params().out[5], 5.0f);
  }
}

TEST(CudaOverlap, InAGraphToo) {
  for (const Follower kind : {Follower::kRight, Follower::kReadsEarly, Follower::kWritesEarly}) {
    OverlapBed bed(5);
    GraphId graph{};
    ASSERT_EQ(bed.runtime().BeginCapture(bed.stream()), "");
    bed.Launch(Follower::kWriter);
    bed.Launch(kind);
    ASSERT_EQ(bed.runtime().EndCapture(bed.stream(), &graph), "");
    ASSERT_EQ(bed.runtime().LaunchGraph(graph, bed.stream()), "");
    const std::string found = bed.Finish();
    if (kind == Follower::kRight) {
      EXPECT_EQ(found, "");
      // Its first kernel has nothing in front of it that runs.
      ASSERT_EQ(bed.runtime().LaunchGraph(graph, bed.stream()), "");
      bed.Launch(Follower::kReadsEarly);
      EXPECT_EQ(bed.Finish(), "");
    } else {
      EXPECT_NE(found.find(kNotWaited), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
