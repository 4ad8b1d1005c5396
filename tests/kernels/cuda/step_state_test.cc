// What a device keeps between steps: tables change where they are told to, tokens are the last
// samples of their slots.
#include "kernels/cuda/ops/rows/step_state.h"

#include <numeric>

#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

struct BeginResult {
  std::vector<int32_t> tables;
  std::vector<int32_t> tokens;
};

// Places `first`, first + stride, … of a table of 4096 become 10,000 and on; of 7 tokens in turn 3
// are last samples.
BeginResult Begin(DeviceBed& bed, int count, int most, int stride) {
  std::vector<int32_t> changes(most), pages(most), last(64), tokens(200);
  for (int i = 0; i < most; ++i) {
    changes[i] = i < count ? 5 + i * stride : -1;  // what is behind the count is not read
    pages[i] = 10'000 + i;
  }
  std::iota(last.begin(), last.end(), 500);
  for (int i = 0; i < 200; ++i) tokens[i] = i % 7 < 3 ? -1 - i * 5 % 64 : i;
  StepBeginParams params;
  params.changes = bed.Put(changes);
  params.pages = bed.Put(pages);
  params.change_count = bed.Put(std::vector<int32_t>{count});
  params.most_changes = most;
  params.tables = bed.New<int32_t>(4096);
  params.tokens = bed.Put(tokens);
  params.token_count = 200;
  params.last = bed.Put(last);
  bed.Check(LaunchStepBegin(bed.runtime(), bed.stream(), params));
  return {bed.Get(params.tables, 4096), bed.Get(params.tokens, 200)};
}

TEST(CudaStepState, TablesAndTokensOfAStepsBegin) {
  for (const auto& [count, most, stride] :
       {std::tuple{0, 0, 1}, {0, 40, 1}, {1, 1, 1}, {40, 40, 3}, {300, 700, 5}}) {
    SCOPED_TRACE(count);
    DeviceBed bed(static_cast<uint64_t>(count) + 1);
    const BeginResult result = Begin(bed, count, most, stride);
    for (int place = 0; place < 4096; ++place) {
      const int change = (place - 5) / stride;
      const bool changed = place >= 5 && (place - 5) % stride == 0 && change < count;
      ASSERT_EQ(result.tables[place], changed ? 10'000 + change : -1) << place;
    }
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(result.tokens[i], i % 7 < 3 ? 500 + i * 5 % 64 : i) << i;
    }
  }
}

TEST(CudaStepState, SamplesReachTheHostAndTheirSlots) {
  DeviceBed bed(3);
  std::vector<SampleOutput> outputs(70);
  std::vector<int32_t> slots(70);
  for (int i = 0; i < 70; ++i) {
    outputs[i].token = i == 4 ? -1 : 1000 + i;
    outputs[i].logprob = -0.5f * static_cast<float>(i);
    outputs[i].top_count = i % 21;
    for (int k = 0; k < kMaxTopLogprobs; ++k) outputs[i].top_ids[k] = 100 * i + k;
    slots[i] = i % 10 == 9 ? -1 : 69 - i;
  }
  void* host = nullptr;
  void* device = nullptr;
  bed.Check(bed.runtime().AllocateMapped(70 * sizeof(SampleOutput), &host, &device));
  StepEndParams params;
  params.outputs = bed.Put(outputs);
  params.host = static_cast<SampleOutput*>(device);
  params.slots = bed.Put(slots);
  params.count = 70;
  params.last = bed.New<int32_t>(70);
  bed.Check(LaunchStepEnd(bed.runtime(), bed.stream(), params));
  const std::vector<int32_t> last = bed.Get(params.last, 70);
  const auto* told = static_cast<const SampleOutput*>(host);
  for (int i = 0; i < 70; ++i) {
    EXPECT_EQ(told[i].token, outputs[i].token);
    EXPECT_EQ(told[i].logprob, outputs[i].logprob);
    EXPECT_EQ(told[i].top_count, outputs[i].top_count);
    EXPECT_EQ(told[i].top_ids[19], outputs[i].top_ids[19]);
    if (slots[i] >= 0) {
      EXPECT_EQ(last[slots[i]], i == 4 ? 0 : 1000 + i);
    }
  }
  EXPECT_EQ(last[60], -1);  // of a sample that is nobody's
  bed.Check(bed.runtime().FreeMapped(host));
}

TEST(CudaStepState, CostsWhatTheBudgetSays) {
  constexpr int kCount = 1024;
  DeviceBed bed(5);
  std::vector<int32_t> places(kCount), tokens(kCount);
  std::iota(places.begin(), places.end(), 0);
  for (int i = 0; i < kCount; ++i) tokens[i] = -1 - i;
  StepBeginParams begin;
  begin.changes = begin.pages = begin.last = bed.Put(places);
  begin.change_count = bed.Put(std::vector<int32_t>{kCount});
  begin.most_changes = begin.token_count = kCount;
  begin.tables = bed.New<int32_t>(kCount);
  begin.tokens = bed.Put(tokens);
  StepEndParams end;
  end.count = 64;
  end.outputs = bed.Put(std::vector<SampleOutput>(64));
  end.host = bed.New<SampleOutput>(64);
  end.slots = begin.changes;
  end.last = bed.New<int32_t>(64);
  bed.runtime().ClearCounters();
  bed.Check(LaunchStepBegin(bed.runtime(), bed.stream(), begin));
  bed.Check(LaunchStepEnd(bed.runtime(), bed.stream(), end));
  bed.Check(bed.runtime().Synchronize(bed.stream()));
  ExpectWithinBudget(bed.runtime(), "step_begin", kCount * 24.0 + 4.0, 0);
  ExpectWithinBudget(bed.runtime(), "step_end", 64 * (2.0 * sizeof(SampleOutput) + 12.0), 0);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
