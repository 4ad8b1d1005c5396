// The emulated grid finds what it is there to find, and nothing in kernels that are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/emulate/emulator.h"
#include "kernels/cuda/emulate/product.h"
#include "kernels/cuda/emulate/random.h"
#include "tests/kernels/cuda/planted/planted.h"

namespace quire::kernels::cuda::test {
namespace {

using emulate::Emulator;
using emulate::Report;

// The inputs of the planted kernels in device memory. Pages that the sequence does not own, and the
// slots behind its end, stay NaN as new memory is.
class PlantedBed {
 public:
  PlantedBed() {
    auto* in = New<float>(4 * kPlantedBlocks * kPlantedThreads);
    for (int i = 0; i < 4 * kPlantedBlocks * kPlantedThreads; ++i) {
      in[i] = static_cast<float>((i * 37) % 101 - 50);
    }
    params_.in = in;
    params_.out = New<float>(kPlantedThreads);
    params_.partial = New<float>(kPlantedBlocks * kPlantedThreads);
    params_.counter = New<uint32_t>(1);
    *params_.counter = 0;
    auto* matrix = New<uint16_t>(256);
    for (int i = 0; i < 256; ++i) {
      matrix[i] = device::Bf16Bits(static_cast<float>((i * 29) % 17 - 8));
    }
    params_.matrix = matrix;
    auto* pages = New<int32_t>(4);
    const int32_t table[4] = {5, 3, 7, 1};
    memcpy(pages, table, sizeof(table));
    params_.pages = pages;
    params_.length = 3 * kPlantedPage + 3;
  }

  // The pool of pages as kernels of paged memory see it.
  PlantedParams Paged() {
    PlantedParams params = params_;
    auto* pool = New<float>(8 * kPlantedPage);
    for (int t = 0; t < params.length; ++t) {
      pool[params.pages[t / kPlantedPage] * kPlantedPage + t % kPlantedPage] =
          static_cast<float>(t * 3 + 1);
    }
    params.in = pool;
    return params;
  }

  const PlantedParams& params() const { return params_; }
  Emulator& emulator() { return emulator_; }

  // Findings of one run: violations, and whether the result differs.
  std::vector<std::string> Run(const Planted& planted, bool wrong, uint64_t seed) {
    const bool paged =
        strstr(planted.what, "page") != nullptr || strstr(planted.what, "slot") != nullptr;
    if (paged && paged_.in == nullptr) paged_ = Paged();
    const PlantedParams params = paged ? paged_ : params_;
    memset(params.out, 0xff, kPlantedThreads * sizeof(float));
    *params.counter = 0;
    Report report = emulator_.Run(
        wrong ? planted.wrong : planted.right,
        runtime::ShapeOf(static_cast<uint32_t>(planted.blocks), 1, kPlantedSharedBytes, params),
        seed);
    const int outputs = planted.outputs == 0 ? params.length : planted.outputs;
    std::vector<float> expected(static_cast<size_t>(outputs));
    planted.expected(params, expected.data());
    if (memcmp(expected.data(), params.out, expected.size() * sizeof(float)) != 0) {
      report.violations.push_back("the result differs");
    }
    return report.violations;
  }

 private:
  template <class T>
  T* New(int count) {
    return static_cast<T*>(emulator_.memory().Allocate(static_cast<size_t>(count) * sizeof(T)));
  }

  Emulator emulator_;
  PlantedParams params_;
  PlantedParams paged_;
};

// A tile as lanes hold it, of small numbers.
struct Tile {
  uint16_t a[16][16];  // row, k
  uint16_t b[16][8];   // k, column
  float d[32][4];

  Tile(emulated::Element element, emulate::Random& random) {
    const auto number = [&] {
      const float x = static_cast<float>(random.Below(65)) / 8.0f - 4.0f;
      return element == emulated::Element::kBf16 ? device::Bf16Bits(x) : device::F16Bits(x);
    };
    for (auto& row : a) std::generate(row, row + 16, number);
    for (auto& row : b) std::generate(row, row + 8, number);
    for (auto& lane : d) {
      for (float& sum : lane) sum = static_cast<float>(random.Below(100)) / 7.0f;
    }
  }
  uint32_t A(uint32_t row, uint32_t k) const {
    return a[row][k] | static_cast<uint32_t>(a[row][k + 1]) << 16;
  }
  uint32_t B(uint32_t k, uint32_t column) const {
    return b[k][column] | static_cast<uint32_t>(b[k + 1][column]) << 16;
  }
};

// Sum i of a lane, term by term in float64.
float ExactSum(const Tile& tile, emulated::Element element, uint32_t lane, uint32_t i) {
  const uint32_t row = lane / 4 + i / 2 * 8;
  const uint32_t column = lane % 4 * 2 + i % 2;
  const auto wide = [element](uint16_t bits) -> double {
    return element == emulated::Element::kBf16 ? device::ToFloat(device::Bf16{bits})
                                               : device::ToFloat(device::F16{bits});
  };
  double sum = tile.d[lane][i];
  for (uint32_t k = 0; k < 16; ++k) sum += wide(tile.a[row][k]) * wide(tile.b[k][column]);
  return static_cast<float>(sum);
}

// Also where columns are zeros, as those of rows that a batch does not have, and meet an infinity
// or a sum of −0.
TEST(CudaEmulator, AProductIsTheSumOfItsTermsToTheBit) {
  emulate::Random random(7);
  for (const auto element : {emulated::Element::kBf16, emulated::Element::kF16}) {
    for (uint32_t kind = 0; kind < 8; ++kind) {
      SCOPED_TRACE(kind);
      Tile tile(element, random);
      for (auto& row : tile.b) {
        for (uint32_t column = 3; column < 8 && (kind & 1) != 0; ++column) {
          row[column] = column % 2 == 0 ? 0 : 0x8000;
        }
      }
      if ((kind & 2) != 0) tile.a[9][5] = element == emulated::Element::kBf16 ? 0x7f80 : 0x7c00;
      if ((kind & 4) != 0) tile.d[6][0] = tile.d[7][3] = -0.0f;
      emulate::ProductTile product;
      product.element = element;
      std::vector<float> expected;
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t g = lane / 4;
        const uint32_t t = lane % 4 * 2;
        for (uint32_t i = 0; i < 4; ++i) expected.push_back(ExactSum(tile, element, lane, i));
        const uint32_t a[4] = {tile.A(g, t), tile.A(g + 8, t), tile.A(g, t + 8),
                               tile.A(g + 8, t + 8)};
        const uint32_t b[2] = {tile.B(t, g), tile.B(t + 8, g)};
        emulate::GiveFragments(product, lane, tile.d[lane], a, b);
      }
      emulate::MultiplyTile(product);
      for (uint32_t i = 0; i < 128; ++i) {
        const float got = tile.d[i / 4][i % 4];
        if (std::isnan(expected[i])) {
          EXPECT_TRUE(std::isnan(got)) << i;
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected[i])) << i;
        }
      }
    }
  }
}

TEST(CudaEmulator, EveryPlantedBugIsFoundAndItsRightFormIsClean) {
  PlantedBed bed;
  int count = 0;
  const Planted* planted = AllPlanted(&count);
  ASSERT_EQ(count, 13);
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(planted[i].what);
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const auto clean = bed.Run(planted[i], false, seed);
      EXPECT_TRUE(clean.empty()) << "seed " << seed << ": " << clean[0];
      // Exact: found in every run, whatever the interleaving.
      EXPECT_FALSE(bed.Run(planted[i], true, seed).empty()) << "seed " << seed;
    }
  }
}

TEST(CudaEmulator, RacesAreFoundAsRacesAlsoWhereTheResultIsRight) {
  PlantedBed bed;
  int count = 0;
  const Planted* planted = AllPlanted(&count);
  const std::pair<const char*, const char*> kinds[] = {
      {"missing barrier", "what another thread wrote"},
      {"missing wait", "asynchronous copy is still writing"},
      {"stage filled too early", "asynchronous copy is still writing"},
      {"missing warp barrier", "what another thread wrote"},
      {"missing fence before a merge", "what another thread wrote"},
      {"missing fence after a merge's atomic", "what another thread wrote"},
      {"written while it is read", "writes what another thread read"},
      {"barrier in a branch", "not all threads reach"},
      {"read behind the end", "outside any allocation"},
      {"misaligned load", "8 bytes at an address that is not a multiple of 8"},
  };
  for (const auto& [what, kind] : kinds) {
    for (int i = 0; i < count; ++i) {
      if (strcmp(planted[i].what, what) != 0) continue;
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        bool found = false;
        std::string all;
        for (const std::string& v : bed.Run(planted[i], true, seed)) {
          found = found || v.find(kind) != std::string::npos;
          all += v + "\n";
        }
        EXPECT_TRUE(found) << what << " seed " << seed << ": " << all;
      }
    }
  }
}

TEST(CudaEmulator, TheSameSeedGivesTheSameRun) {
  PlantedBed bed;
  int count = 0;
  const Planted* planted = AllPlanted(&count);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(bed.Run(planted[i], true, 7), bed.Run(planted[i], true, 7));
  }
}

TEST(CudaEmulator, BankConflictsOfMatrixLoadsAreCounted) {
  PlantedBed bed;
  const auto shape = runtime::ShapeOf(1, 1, kPlantedSharedBytes, bed.params());
  const Report conflicting = bed.emulator().Run(ConflictingLoads(), shape, 1);
  const Report spread = bed.emulator().Run(SpreadLoads(), shape, 1);
  EXPECT_TRUE(conflicting.violations.empty()) << conflicting.violations[0];
  EXPECT_TRUE(spread.violations.empty()) << spread.violations[0];
  EXPECT_EQ(conflicting.counters.bank_conflicts, 4u * 7u);  // four matrices, eight passes each
  EXPECT_EQ(spread.counters.bank_conflicts, 0u);
  EXPECT_EQ(spread.counters.matrix_loads, 4u);
}

TEST(CudaEmulator, LaunchesThatNoDeviceTakesAreRefused) {
  PlantedBed bed;
  auto shape = runtime::ShapeOf(1, 1, (227 << 10) + 1, bed.params());
  EXPECT_FALSE(bed.emulator().Run(SpreadLoads(), shape, 1).violations.empty());
  shape = runtime::ShapeOf(0, 1, 0, bed.params());
  EXPECT_FALSE(bed.emulator().Run(SpreadLoads(), shape, 1).violations.empty());
  for (const bool y : {true, false}) {
    shape = runtime::ShapeOf(1, 1, kPlantedSharedBytes, bed.params());
    (y ? shape.grid_y : shape.grid_z) = 65'536;
    EXPECT_FALSE(bed.emulator().Run(SpreadLoads(), shape, 1).violations.empty());
  }
}

TEST(CudaEmulator, DeviceMemoryKeepsItsRedZones) {
  Emulator emulator;
  emulate::DeviceMemory& memory = emulator.memory();
  auto* a = static_cast<unsigned char*>(memory.Allocate(100));
  auto* b = static_cast<unsigned char*>(memory.Allocate(32));
  const size_t at = memory.Offset(a);
  EXPECT_TRUE(memory.Valid(at, 100));
  EXPECT_FALSE(memory.Valid(at, 101));
  EXPECT_FALSE(memory.Valid(at + 100, 1));
  EXPECT_FALSE(memory.Valid(at - 1, 1));
  EXPECT_TRUE(memory.Valid(memory.Offset(b) + 16, 16));
  EXPECT_FALSE(memory.Free(a + 16));
  EXPECT_TRUE(memory.Free(a));
  EXPECT_FALSE(memory.Valid(at, 1));
  EXPECT_FALSE(memory.Free(a));
  EXPECT_EQ(memory.Allocate(64), a);  // the gap is used again
  EXPECT_EQ(memory.Allocate(emulate::DeviceMemory::kBytes), nullptr);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
