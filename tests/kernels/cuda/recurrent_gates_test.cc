// Gated norms and the gate of attention: the CPU's bits up to the rounding to bfloat16, near
// float64, equal at every number of rows.
#include "kernels/cpu/recurrent_gates.h"
#include "kernels/cpu/vec16_plain.h"
#include "kernels/cuda/ops/recurrent/gated_norm.h"
#include "kernels/cuda/ops/recurrent/sigmoid_gate.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

const int kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                          12, 13, 14, 15, 16, 17, 31, 32, 33, 64};

struct NormCase {
  int width;
  int group;
  bool gate_first = false;
  bool weight_per_group = false;
};

struct NormData {
  NormData(const NormCase& c, int rows)
      : in(RandomFloats(static_cast<size_t>(rows) * static_cast<size_t>(c.width), 1, 3.0f)),
        gate(RandomFloats(in.size(), 2, 2.0f)),
        weight(RandomFloats(static_cast<size_t>(c.weight_per_group ? c.width : c.group), 3)) {}
  std::vector<float> in, gate, weight;
};

std::vector<uint16_t> RunNorm(DeviceBed& bed, const NormCase& c, int rows) {
  const NormData data(c, rows);
  GatedNormParams params;
  params.in = bed.Put(data.in);
  params.gate = bed.Put(data.gate);
  params.weight = bed.Put(data.weight);
  params.out = bed.New<uint16_t>(data.in.size());
  params.rows = rows;
  params.width = c.width;
  params.group = c.group;
  params.weight_per_group = c.weight_per_group;
  params.gate_first = c.gate_first;
  bed.Check(LaunchGatedNorm(bed.runtime(), bed.stream(), params));
  return bed.Get(params.out, data.in.size());
}

std::vector<float> CpuNorm(const NormCase& c, int rows) {
  const NormData data(c, rows);
  std::vector<float> out(data.in.size());
  cpu::GatedNormJob job;
  job.weight = data.weight.data();
  job.weight_per_group = c.weight_per_group;
  job.width = c.width;
  job.group = c.group;
  job.epsilon = 1e-6f;
  job.gate_first = c.gate_first;
  job.in = data.in.data();
  job.gate = data.gate.data();
  job.out = out.data();
  job.in_stride = job.gate_stride = job.out_stride = c.width;
  cpu::GatedNorm<cpu::Vec16Plain>(job, 0, rows);
  return out;
}

double Swish(double x) { return x / (1.0 + std::exp(-x)); }

TEST(CudaGatedNorm, HasTheCpusBitsNearFloat64) {
  for (const NormCase& c :
       {NormCase{48, 24}, NormCase{256, 128}, NormCase{16, 8, true, true},
        NormCase{512, 256, true, true}, NormCase{264, 264, true, true}, NormCase{2096, 1048},
        NormCase{40, 20}, NormCase{kMostGatedNormGroup, kMostGatedNormGroup, true, true}}) {
    SCOPED_TRACE(testing::Message() << "groups of " << c.group);
    constexpr int kRows = 3;
    DeviceBed bed(static_cast<uint64_t>(c.group));
    const std::vector<uint16_t> out = RunNorm(bed, c, kRows);
    const std::vector<float> cpus = CpuNorm(c, kRows);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], device::Bf16Bits(cpus[i])) << i;
    const NormData data(c, kRows);
    const auto group = static_cast<size_t>(c.group);
    for (size_t begin = 0; begin < out.size(); begin += group) {
      double squares = 0.0;
      const auto x = [&](size_t i) {
        return data.in[i] * (c.gate_first ? Swish(data.gate[i]) : 1.0);
      };
      for (size_t i = begin; i < begin + group; ++i) squares += x(i) * x(i);
      const double factor = 1.0 / std::sqrt(squares / c.group + 1e-6);
      for (size_t i = begin; i < begin + group; ++i) {
        const double weight = data.weight[i % data.weight.size()];
        const double exact = x(i) * factor * weight * (c.gate_first ? 1.0 : Swish(data.gate[i]));
        ASSERT_NEAR(Widen(out[i]), exact, 1.01 * Bf16Rounding(exact) + 2e-5) << i;
      }
    }
  }
}

TEST(CudaGatedNorm, BitsOfARowAreTheSameAtAnyNumberOfRows) {
  for (const NormCase& c : {NormCase{48, 24}, NormCase{600, 300, true, true}}) {
    DeviceBed bed(3);
    const auto whole = RunNorm(bed, c, 64);
    for (const int rows : kRowCounts) {
      const auto part = RunNorm(bed, c, rows);
      ASSERT_EQ(memcmp(part.data(), whole.data(), 2 * part.size()), 0) << rows;
    }
  }
}

TEST(CudaGatedNorm, KeepsItsBudget) {
  const auto bytes = [](const NormCase& c, int rows) {
    return 10.0 * rows * c.width + 4.0 * (c.weight_per_group ? c.width : c.group);
  };
  {
    // Every warp reads the weight of its group: in fact from a cache.
    const NormCase c{512, 128};
    DeviceBed bed(4);
    RunNorm(bed, c, 8);
    const double again = 4.0 * (8 * 4 - 1) * c.group;
    ExpectWithinBudget(bed.runtime(), "gated_norm_narrow", bytes(c, 8) + again, 0);
  }
  const NormCase c{1024, 512, true, true};
  DeviceBed bed(4);
  RunNorm(bed, c, 8);
  ExpectWithinBudget(bed.runtime(), "gated_norm_wide", bytes(c, 8) + 4.0 * 7 * c.width, 0);
}

TEST(CudaGatedNorm, AGroupThatItCannotTakeIsRefused) {
  DeviceBed bed;
  GatedNormParams params;
  params.rows = 1;
  for (const auto& [width, group] : {std::pair(64, 0), std::pair(64, 48),
                                     std::pair(kMostGatedNormGroup + 8, kMostGatedNormGroup + 8)}) {
    params.width = width;
    params.group = group;
    EXPECT_NE(LaunchGatedNorm(bed.runtime(), bed.stream(), params), "") << group;
  }
}

TEST(CudaSigmoidGate, IsTheCpusAndInPlaceAndKeepsItsBudget) {
  for (const int count : {8, 16, 2040, 2048, 2056, 16384}) {
    DeviceBed bed(static_cast<uint64_t>(count));
    const auto n = static_cast<size_t>(count);
    std::vector<uint16_t> in = RandomBf16(n, 11, 4.0f);
    std::vector<float> gate = RandomFloats(n, 12, 30.0f);  // far beyond where it is flat
    SigmoidGateParams params;
    uint16_t* rows = bed.Put(in);
    params.in = params.out = rows;
    params.gate = bed.Put(gate);
    params.count = count;
    bed.Check(LaunchSigmoidGate(bed.runtime(), bed.stream(), params));
    const std::vector<uint16_t> out = bed.Get(rows, n);
    std::vector<float> wide, cpus(n);
    for (const uint16_t bits : in) wide.push_back(Widen(bits));
    cpu::GateJob job;
    job.width = count;
    job.in = wide.data();
    job.gate = gate.data();
    job.out = cpus.data();
    cpu::Gate<cpu::Vec16Plain>(job, 0, 1);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(out[i], device::Bf16Bits(cpus[i])) << i;
      const double exact = wide[i] / (1.0 + std::exp(-static_cast<double>(gate[i])));
      ASSERT_NEAR(Widen(out[i]), exact, 1.01 * Bf16Rounding(exact) + 2e-5) << i;
    }
    if (count == 16384) ExpectWithinBudget(bed.runtime(), "sigmoid_gate", 8.0 * count, 0);
    params.count = count + 4;
    EXPECT_NE(LaunchSigmoidGate(bed.runtime(), bed.stream(), params), "");
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
