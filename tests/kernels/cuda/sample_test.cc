// Sampling against the CPU's sampler: tokens, counts, ids and the bits of logprobs, for every mix
// of parameters, with ties, numbers that are none, and any neighbours.
#include "kernels/cuda/ops/sample/sample.h"

#include <limits>
#include <map>
#include <random>

#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/sample_answers.h"

namespace quire::kernels::cuda::test {
namespace {

// One launch over cases of one vocabulary.
std::vector<SampleOutput> OnDevice(DeviceBed& bed, const std::vector<Case>& cases) {
  const size_t vocabulary = cases[0].logits.size();
  SampleParams params;
  params.stride = static_cast<int64_t>((vocabulary + 3) / 4 * 4 + 4);
  params.rows = static_cast<int>(cases.size());
  params.vocabulary = static_cast<int>(vocabulary);
  // Columns behind the vocabulary are no logits.
  std::vector<float> logits(cases.size() * params.stride, std::numeric_limits<float>::quiet_NaN());
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::copy(cases[i].logits.begin(), cases[i].logits.end(), &logits[i * params.stride]);
    rows.push_back(RowOf(cases[i]));
  }
  params.logits = bed.Put(logits);
  const size_t bytes = PackedSampleRowsBytes(rows);
  auto* packed = bed.New<unsigned char>(bytes);
  std::vector<uint64_t> host((bytes + 7) / 8);
  params.plain = PackSampleRows(rows, host.data(), packed);
  bed.Check(bed.runtime().Copy(bed.stream(), packed, host.data(), bytes));
  bed.Check(bed.runtime().Synchronize(bed.stream()));
  params.sample_rows = reinterpret_cast<const DeviceSampleRow*>(packed);
  params.outputs = bed.New<SampleOutput>(cases.size());
  bed.runtime().ClearCounters();
  bed.Check(LaunchSample(bed.runtime(), bed.stream(), params));
  return bed.Get(params.outputs, cases.size());
}

void ExpectAllSame(DeviceBed& bed, const std::vector<Case>& cases) {
  const auto got = OnDevice(bed, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(got[i], OnCpu(cases[i]));
  }
}

TEST(CudaSample, IsTheCpusSamplerForEveryMixOfParametersInAnyCompany) {
  std::mt19937_64 random(20);
  std::map<size_t, std::vector<Case>> by_vocabulary;
  for (int i = 0; i < 300; ++i) {
    Case c = sampling::RandomCase(random);
    if (random() % 8 == 0) {
      c.row.scored_token = static_cast<int32_t>(random() % c.logits.size());
    }
    if (random() % 12 == 0) c.row.typical_p = 0.5f;
    by_vocabulary[c.logits.size()].push_back(c);
  }
  ASSERT_EQ(by_vocabulary.size(), 9u);
  uint64_t seed = 0;
  for (const auto& [vocabulary, cases] : by_vocabulary) {
    SCOPED_TRACE(vocabulary);
    DeviceBed bed(++seed);
    ExpectAllSame(bed, cases);
  }
}

TEST(CudaSample, ARowIsTheSameAloneAndAmongMany) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 64; ++i) {
    cases.push_back(CaseOf(70, i));
    cases.back().row.top_p = i % 2 == 0 ? 0.8f : 1.0f;
    cases.back().row.logprobs = static_cast<int32_t>(i % 4);
  }
  DeviceBed bed(3);
  const auto many = OnDevice(bed, cases);
  for (const size_t count : {1, 2, 17, 33}) {
    const auto few = OnDevice(bed, {cases.begin(), cases.begin() + static_cast<long>(count)});
    for (size_t i = 0; i < count; ++i) ExpectSame(few[i], many[i]);
  }
}

TEST(CudaSample, GreedyRowsTakeTheLowestIdOfThePeak) {
  for (const int vocabulary : {1, 3, 7, 1030}) {
    std::vector<Case> cases;
    for (uint64_t i = 0; i < 3; ++i) {
      Case c = CaseOf(vocabulary, i);
      c.row.temperature = 0.0f;
      for (float& z : c.logits) z = std::round(z / 8.0f);
      cases.push_back(c);
    }
    DeviceBed bed(vocabulary);
    ExpectAllSame(bed, cases);
  }
}

TEST(CudaSample, ZerosOfBothSignsAreEqual) {
  DeviceBed bed;
  ExpectAllSame(bed, ZerosOfBothSigns());
}

TEST(CudaSample, ARowThatIsNoNumberFailsAlone) {
  const std::vector<Case> cases = RowsThatAreNoNumber();
  DeviceBed bed(2);
  ExpectAllSame(bed, cases);
  ExpectOnlyTheFirstIsWhole(OnDevice(bed, cases));
}

// Rows of which a part lies behind what shared memory holds, and bins that are too full to list.
TEST(CudaSample, WideRowsAndFullBinsAreCutExactly) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 4; ++i) {
    Case c = CaseOf(131075, i, i == 3 ? 0.001f : 3.0f);  // i = 3: all in one bin
    c.row.logprobs = 6;
    if (i == 0) c.row.top_p = 0.9f;
    if (i == 1) c.row.top_k = 50;
    if (i == 3) c.row.top_p = 0.2f;
    for (int id = 5; id < 131075 && i != 2; id += 9001) c.counts.push_back({id, 2});
    c.row.frequency_penalty = 0.25f;
    c.banned = {131074, 3, 3};
    c.bias.push_back({131070, 30.0f});
    cases.push_back(c);
  }
  DeviceBed bed(4);
  ExpectAllSame(bed, cases);
}

// What a device has no room for is read again.
TEST(CudaSample, ASmallerDeviceKeepsLessOfARowAndDrawsTheSame) {
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 3; ++i) {
    Case c = CaseOf(36000, 70 + i, 3.0f);
    c.row.logprobs = 6;
    if (i == 0) c.row.top_p = 0.9f;
    if (i == 1) c.row.top_k = 50;
    for (int id = 5; id < 36000; id += 901) c.counts.push_back({id, 2});
    c.row.repetition_penalty = 1.3f;
    c.bias.push_back({35990, 30.0f});
    cases.push_back(c);
  }
  for (const uint32_t shared_bytes : {99u << 10, 163u << 10}) {
    DeviceBed bed(6);
    bed.runtime().LimitShared(shared_bytes);
    ExpectAllSame(bed, cases);
  }
}

TEST(CudaSample, KeepsItsBudget) {
  std::vector<Case> cases{CaseOf(32768, 1), CaseOf(32768, 2)};
  for (Case& c : cases) {
    c.row.logprobs = 21;
    c.row.top_k = 40;
    c.row.top_p = 0.9f;
  }
  DeviceBed bed(5);
  ExpectAllSame(bed, cases);
  ExpectWithinBudget(bed.runtime(), "sample",
                     2.0 * (32768 * 4 + sizeof(SampleOutput) + sizeof(DeviceSampleRow)), 0);
}

TEST(CudaSample, ShapesThatItCannotTakeAreRefused) {
  DeviceBed bed;
  SampleParams params;
  params.rows = 1;
  for (const auto& [vocabulary, stride] : {std::pair{0, 4}, std::pair{-1, 4}, std::pair{5, 4},
                                           std::pair{5, 6}, std::pair{1 << 24, 1 << 24}}) {
    params.vocabulary = vocabulary;
    params.stride = stride;
    EXPECT_NE(LaunchSample(bed.runtime(), bed.stream(), params), "");
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
