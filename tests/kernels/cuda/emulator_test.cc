// The emulated grid finds what it is there to find, and nothing in kernels that are right.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/emulate/emulator.h"
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

TEST(CudaEmulator, EveryPlantedBugIsFoundAndItsRightFormIsClean) {
  PlantedBed bed;
  int count = 0;
  const Planted* planted = AllPlanted(&count);
  ASSERT_EQ(count, 12);
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
