// Streams run late, in an order that only events bind; graphs are recorded and replayed.
#include <set>

#include "kernels/cuda/emulate/emulated_runtime.h"
#include "kernels/cuda/ops/rows/activation.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::EmulatedRuntime;
using runtime::EventId;
using runtime::GraphId;
using runtime::StreamId;

struct Two {
  explicit Two(uint64_t seed) : runtime(seed) {
    EXPECT_EQ(runtime.CreateStream(&a), "");
    EXPECT_EQ(runtime.CreateStream(&b), "");
    EXPECT_EQ(runtime.CreateEvent(&event), "");
    void* device = nullptr;
    EXPECT_EQ(runtime.AllocateMapped(64, reinterpret_cast<void**>(&host), &device), "");
    memset(host, 0, 64);
  }
  EmulatedRuntime runtime;
  StreamId a{}, b{};
  EventId event{};
  unsigned char* host = nullptr;
};

TEST(EmulatedRuntime, NothingHappensBeforeTheHostWaits) {
  Two t(1);
  unsigned char source = 7;
  ASSERT_EQ(t.runtime.Copy(t.a, t.host, &source, 1), "");
  source = 9;  // too early: the copy has not read it yet
  EXPECT_EQ(t.host[0], 0);
  ASSERT_EQ(t.runtime.Synchronize(t.a), "");
  EXPECT_EQ(t.host[0], 9);
}

TEST(EmulatedRuntime, StreamsAreOrderedByEventsOnly) {
  std::set<int> without;
  std::set<int> with;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    for (const bool ordered : {false, true}) {
      Two t(seed);
      ASSERT_EQ(t.runtime.Fill(t.a, t.host, 1, 1), "");
      ASSERT_EQ(t.runtime.Record(t.event, t.a), "");
      if (ordered) {
        ASSERT_EQ(t.runtime.Wait(t.b, t.event), "");
      }
      ASSERT_EQ(t.runtime.Copy(t.b, t.host + 1, t.host, 1), "");
      ASSERT_EQ(t.runtime.Synchronize(t.b), "");
      (ordered ? with : without).insert(t.host[1]);
    }
  }
  EXPECT_EQ(with, std::set<int>{1});
  EXPECT_EQ(without, (std::set<int>{0, 1}));  // a missing event shows
}

TEST(EmulatedRuntime, AnEventIsReachedWhenItsLastRecordIs) {
  Two t(3);
  bool done = false;
  ASSERT_EQ(t.runtime.Query(t.event, &done), "");
  EXPECT_TRUE(done);  // never recorded
  ASSERT_EQ(t.runtime.Record(t.event, t.a), "");
  for (int i = 0; i < 100 && !done; ++i) ASSERT_EQ(t.runtime.Query(t.event, &done), "");
  ASSERT_EQ(t.runtime.Synchronize(t.event), "");
  ASSERT_EQ(t.runtime.Query(t.event, &done), "");
  EXPECT_TRUE(done);
}

TEST(EmulatedRuntime, AGraphIsRecordedOnceAndReplayedWithItsEdges) {
  std::set<int> unordered;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Two t(seed);
    EventId joined{};
    ASSERT_EQ(t.runtime.CreateEvent(&joined), "");
    GraphId graph{};
    ASSERT_EQ(t.runtime.BeginCapture(t.a), "");
    ASSERT_EQ(t.runtime.Fill(t.a, t.host, 1, 1), "");
    ASSERT_EQ(t.runtime.Record(t.event, t.a), "");
    ASSERT_EQ(t.runtime.Wait(t.b, t.event), "");                // b joins the capture
    ASSERT_EQ(t.runtime.Copy(t.b, t.host + 1, t.host, 1), "");  // after the fill
    ASSERT_EQ(t.runtime.Fill(t.b, t.host + 2, 5, 1), "");
    ASSERT_EQ(t.runtime.Copy(t.a, t.host + 3, t.host + 2, 1), "");  // beside b's
    ASSERT_EQ(t.runtime.Record(joined, t.b), "");
    ASSERT_EQ(t.runtime.Wait(t.a, joined), "");
    ASSERT_EQ(t.runtime.Copy(t.a, t.host + 4, t.host + 2, 1), "");
    ASSERT_EQ(t.runtime.EndCapture(t.a, &graph), "");
    EXPECT_EQ(t.host[0], 0);  // recorded, not run
    for (int replay = 0; replay < 2; ++replay) {
      memset(t.host, 0, 64);
      ASSERT_EQ(t.runtime.LaunchGraph(graph, t.a), "");
      ASSERT_EQ(t.runtime.Synchronize(t.a), "");
      EXPECT_EQ(t.host[1], 1);
      EXPECT_EQ(t.host[4], 5);
      unordered.insert(t.host[3]);
    }
    // A launch that is under way keeps a graph that is destroyed.
    memset(t.host, 0, 64);
    ASSERT_EQ(t.runtime.LaunchGraph(graph, t.a), "");
    ASSERT_EQ(t.runtime.DestroyGraph(graph), "");
    ASSERT_EQ(t.runtime.Synchronize(t.a), "");
    EXPECT_EQ(t.host[4], 5);
    EXPECT_NE(t.runtime.LaunchGraph(graph, t.a), "");
  }
  EXPECT_EQ(unordered, (std::set<int>{0, 5}));
}

TEST(EmulatedRuntime, GraphsKeepTheParametersOfTheirKernels) {
  DeviceBed bed(5);
  ActivationParams params;
  params.in = bed.Put(RandomBf16(8, 1));
  params.out = bed.New<uint16_t>(8);
  params.rows = 1;
  params.width = 8;
  params.kind = Activation::kRelu;
  GraphId graph{};
  bed.Check(bed.runtime().BeginCapture(bed.stream()));
  bed.Check(LaunchActivation(bed.runtime(), bed.stream(), params));
  bed.Check(bed.runtime().EndCapture(bed.stream(), &graph));
  uint16_t* out = params.out;
  params = ActivationParams();
  bed.Check(bed.runtime().LaunchGraph(graph, bed.stream()));
  for (const uint16_t x : bed.Get(out, 8)) EXPECT_GE(Widen(x), 0.0f);
}

TEST(EmulatedRuntime, RangesHaveMemoryWhereItIsMapped) {
  Two t(7);
  size_t granule = 0, free = 0, total = 0, now = 0;
  ASSERT_EQ(t.runtime.RangeGranularity(&granule), "");
  ASSERT_EQ(t.runtime.MemoryInfo(&free, &total), "");
  EXPECT_EQ(free, total);  // mapped memory is the host's
  void* range = nullptr;
  EXPECT_NE(t.runtime.ReserveRange(granule + 1, &range), "");
  ASSERT_EQ(t.runtime.ReserveRange(4 * granule, &range), "");
  ASSERT_EQ(t.runtime.MemoryInfo(&now, &total), "");
  EXPECT_EQ(now, free);
  EXPECT_NE(t.runtime.Fill(t.a, range, 0, 1), "");  // no memory yet
  EXPECT_NE(t.runtime.MapRange(range, 0, granule / 2), "");
  EXPECT_NE(t.runtime.MapRange(range, 3 * granule, 2 * granule), "");
  EXPECT_NE(t.runtime.MapRange(t.host, 0, granule), "");
  ASSERT_EQ(t.runtime.MapRange(range, 2 * granule, 2 * granule), "");
  EXPECT_NE(t.runtime.MapRange(range, granule, 2 * granule), "");  // some is there
  ASSERT_EQ(t.runtime.MemoryInfo(&now, &total), "");
  EXPECT_EQ(now, free - 2 * granule);
  auto* bytes = static_cast<unsigned char*>(range);
  EXPECT_EQ(t.runtime.Fill(t.a, bytes + 2 * granule, 5, 2 * granule), "");
  EXPECT_NE(t.runtime.Fill(t.a, bytes + 2 * granule - 1, 5, 2), "");
  ASSERT_EQ(t.runtime.Synchronize(t.a), "");
  t.runtime.LimitMemory(total - now + granule - 1);
  EXPECT_NE(t.runtime.MapRange(range, 0, granule), "");  // none is left
  const uint64_t calls = t.runtime.memory_calls();
  ASSERT_EQ(t.runtime.FreeRange(range), "");
  EXPECT_EQ(t.runtime.memory_calls(), calls + 1);
  EXPECT_NE(t.runtime.FreeRange(range), "");
}

TEST(EmulatedRuntime, WhatCudaRefusesIsRefused) {
  Two t(6);
  GraphId graph{};
  EXPECT_NE(t.runtime.EndCapture(t.a, &graph), "");
  EXPECT_NE(t.runtime.Record(t.event, StreamId{9}), "");
  EXPECT_NE(t.runtime.Wait(t.a, EventId{9}), "");
  EXPECT_NE(t.runtime.Fill(t.a, t.host + 60, 0, 5), "");
  EXPECT_NE(t.runtime.Free(t.host + 1), "");
  ASSERT_EQ(t.runtime.Record(t.event, t.b), "");
  ASSERT_EQ(t.runtime.BeginCapture(t.a), "");
  EXPECT_NE(t.runtime.BeginCapture(t.b), "");
  EXPECT_NE(t.runtime.Synchronize(t.a), "");
  EXPECT_NE(t.runtime.Wait(t.a, t.event), "");  // recorded outside the capture
  ASSERT_EQ(t.runtime.Record(t.event, t.a), "");
  ASSERT_EQ(t.runtime.Wait(t.b, t.event), "");
  ASSERT_EQ(t.runtime.Fill(t.b, t.host, 1, 1), "");
  EXPECT_NE(t.runtime.EndCapture(t.a, &graph), "");  // b was never joined
}

}  // namespace
}  // namespace quire::kernels::cuda::test
