// Every weight format as the reference reader of GGUF files understands it: the recorded values,
// the float64 reading that other tests use, and what kernels multiply with must be the same.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/expand.h"
#include "kernels/grid_blocks.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cpu {
namespace {

struct Recorded {
  WeightSource source;
  std::vector<float> values;
};

std::vector<Recorded> ReadFixture(std::vector<char>& bytes) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/kernels/fixtures/gguf_blocks.bin", std::ios::binary);
  bytes.assign(std::istreambuf_iterator<char>(file), {});
  std::vector<Recorded> formats;
  for (size_t at = 0; at + 12 <= bytes.size();) {
    uint32_t header[3];
    std::memcpy(header, bytes.data() + at, 12);
    at += 12;
    Recorded format;
    format.source = {static_cast<DType>(header[0]), 1, header[2],
                     reinterpret_cast<const std::byte*>(bytes.data() + at)};
    at += header[1];
    format.values.resize(header[2]);
    std::memcpy(format.values.data(), bytes.data() + at, 4 * format.values.size());
    at += 4 * format.values.size();
    formats.push_back(format);
  }
  return formats;
}

// The row that a kernel decodes.
std::vector<float> Decoded(const KernelTable& kernels, const WeightSource& source) {
  const Weight weight{.name = "w", .parts = {source}, .rows = 1, .cols = source.cols};
  PackedMatrix matrix = PlanMatrix(weight, false);
  AllocateMatrix(matrix);
  PackPanels(matrix, weight, 0, matrix.PanelCount());
  std::vector<float> out(source.cols, std::nanf(""));
  std::vector<float> scratch(LinearScratchFloats(1));
  kernels.embed({.table = &matrix}, 0, out.data(), scratch.data());
  return out;
}

TEST(Format, KernelsReadWhatTheReferenceReads) {
  std::vector<char> bytes;
  const std::vector<Recorded> formats = ReadFixture(bytes);
  ASSERT_EQ(formats.size(), 14u);
  for (const Recorded& format : formats) {
    const char* name = DTypeName(format.source.type);
    const std::vector<float> got = Decoded(ReferenceKernels(), format.source);
    for (size_t i = 0; i < format.values.size(); ++i) {
      const double exact = test::ElementOf(format.source, 0, static_cast<int64_t>(i));
      // Formats with a minimum subtract rounded products: an error relative to those.
      const double size = std::fabs(exact) + 2.0 * 63 * 63;
      ASSERT_NEAR(format.values[i], exact, 1e-7 * size) << name << " " << i;
      ASSERT_NEAR(got[i], exact, 1e-7 * size) << name << " " << i;
    }
    EXPECT_EQ(Decoded(Avx2Kernels(), format.source), got) << name;
    if (HostHas(Isa::kAvx512)) {
      EXPECT_EQ(Decoded(Avx512Kernels(), format.source), got) << name;
    }
  }
}

// The first numbers of SplitMix64, from zero.
uint64_t Mix(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

uint64_t DigestOf(const std::vector<float>& values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = std::isnan(values[i]) ? 0x7fc00000u : std::bit_cast<uint32_t>(values[i]);
    sum += bits * Mix(i);
  }
  return sum;
}

// The types of one to three bits compute without rounding: bit for bit what the reference reads,
// at every point of a grid, with any scale. make_grid_digests.py says what a digest is.
TEST(Format, GridsAreReadBitForBit) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/kernels/fixtures/grid_digests.txt");
  constexpr int64_t kBlocks = 1024;
  int types = 0;
  for (const DType type : test::kAllTypes) {
    if (!gguf::IsGrid(type)) continue;
    ++types;
    std::string name;
    uint64_t digest = 0;
    ASSERT_TRUE(file >> name >> std::hex >> digest);
    ASSERT_EQ(name, DTypeName(type));
    std::vector<std::byte> bytes(static_cast<size_t>(kBlocks * BlockBytes(type)));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(Mix(i));
    const WeightSource source{type, 1, kBlocks * BlockElements(type), bytes.data()};
    std::vector<float> expanded(static_cast<size_t>(source.cols));
    ExpandRow(source, 0, expanded);
    EXPECT_EQ(DigestOf(expanded), digest) << name;
    EXPECT_EQ(DigestOf(Decoded(ReferenceKernels(), source)), digest) << name;
    EXPECT_EQ(DigestOf(Decoded(Avx2Kernels(), source)), digest) << name;
    if (HostHas(Isa::kAvx512)) {
      EXPECT_EQ(DigestOf(Decoded(Avx512Kernels(), source)), digest) << name;
    }
    for (size_t i = 0; i < 40 * 256; ++i) {
      if (!std::isfinite(expanded[i])) continue;
      const double exact = test::ElementOf(source, 0, static_cast<int64_t>(i));
      ASSERT_EQ(static_cast<double>(expanded[i]), exact) << name << " " << i;
    }
  }
  EXPECT_EQ(types, 11);
}

// Bit for bit, whatever the instruction set: every scale of e4m3 with every code, and the scales
// and codes of the normal form with its one rounding.
TEST(Format, FourBitNumbersAreReadBitForBit) {
  test::WeightStore store(12);
  std::vector<std::byte> every;  // blocks of NVFP4
  for (int scale = 0; scale < 256; scale += 4) {
    for (int i = 0; i < 4; ++i) every.push_back(static_cast<std::byte>(scale + i));
    for (int i = 0; i < 32; ++i) every.push_back(static_cast<std::byte>(i % 8 * 34 + 16));
  }
  const WeightSource scales{DType::kNVFP4, 1, 64 * 64, every.data()};
  for (const DType type : {DType::kNVFP4, DType::kF4_16, DType::kNF4, DType::kFP4}) {
    for (const WeightSource& source : {store.Random(type, 1, 768, 0.1f), scales}) {
      if (source.type != type) continue;
      std::vector<float> expanded(static_cast<size_t>(source.cols));
      ExpandRow(source, 0, expanded);
      EXPECT_EQ(Decoded(ReferenceKernels(), source), expanded) << DTypeName(type);
      EXPECT_EQ(Decoded(Avx2Kernels(), source), expanded) << DTypeName(type);
      if (HostHas(Isa::kAvx512)) {
        EXPECT_EQ(Decoded(Avx512Kernels(), source), expanded) << DTypeName(type);
      }
      for (size_t i = 0; i < expanded.size(); ++i) {
        const double exact = test::ElementOf(source, 0, static_cast<int64_t>(i));
        if (type == DType::kNVFP4) {
          ASSERT_EQ(static_cast<double>(expanded[i]), exact) << i;
        } else if (type != DType::kNF4) {
          ASSERT_NEAR(expanded[i], exact, 1e-7 * std::fabs(exact)) << DTypeName(type) << " " << i;
        } else {
          ASSERT_NEAR(expanded[i], exact, 1e-6 * 0.1) << i;
        }
      }
    }
  }
}

// A slice of columns, cut on a border of blocks, packs as a matrix of these columns alone does.
TEST(Format, SlicesOfColumnsArePackedWhereTheyLie) {
  test::WeightStore store(9);
  for (const DType type : test::kAllTypes) {
    const WeightSource whole = store.Random(type, 19, 768, 1.0f);
    const int64_t block = BlockElements(type);
    WeightSource slice = whole;
    slice.cols = 256;
    slice.data = whole.data + 512 / block * BlockBytes(type);
    slice.row_stride = whole.RowBytes();
    std::vector<std::byte> memory;
    for (int64_t row = 0; row < slice.rows; ++row) {
      memory.insert(memory.end(), slice.Row(row), slice.Row(row) + slice.RowBytes());
    }
    const WeightSource copy{type, 19, 256, memory.data()};
    PackedMatrix matrices[2];
    for (int i = 0; i < 2; ++i) {
      const Weight weight{.name = "w", .parts = {i == 0 ? slice : copy}, .rows = 19, .cols = 256};
      matrices[i] = PlanMatrix(weight, false);
      AllocateMatrix(matrices[i]);
      PackPanels(matrices[i], weight, 0, matrices[i].PanelCount());
    }
    ASSERT_EQ(matrices[0].memory.size(), matrices[1].memory.size());
    EXPECT_EQ(std::memcmp(matrices[0].memory.data(), matrices[1].memory.data(),
                          static_cast<size_t>(matrices[0].memory.size())),
              0)
        << DTypeName(type);
  }
}

TEST(Half, WidensEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if ((half & 0x7c00) == 0x7c00) continue;
    ASSERT_EQ(HalfToFloat(half), static_cast<float>(test::HalfValue(half))) << bits;
  }
  EXPECT_EQ(HalfToFloat(0x7c00), INFINITY);
  EXPECT_EQ(HalfToFloat(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7c01)));
}

TEST(BFloat, RoundsToTheNearestEven) {
  EXPECT_EQ(FloatToBFloat(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat(1.00390625f), 0x3f80);  // half way, even below
  EXPECT_EQ(FloatToBFloat(1.01171875f), 0x3f82);  // half way, even above
  EXPECT_EQ(FloatToBFloat(-INFINITY), 0xff80);
  EXPECT_TRUE(std::isnan(BFloatToFloat(FloatToBFloat(std::nanf("")))));
}

}  // namespace
}  // namespace quire::kernels::cpu
