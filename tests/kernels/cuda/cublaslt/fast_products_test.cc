// Products by a library that stands in for cuBLASLt: the same meaning as our own kernel's, one
// search and one timing for each shape, and our own kernel wherever it will not do.
#include "kernels/cuda/cublaslt/fast_products.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/kernels/cuda/cublaslt/fake_cublaslt.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

using cublaslt::FastProducts;
using cublaslt::Library;

const std::string kFakes = QUIRE_FAKE_CUBLASLT_FOLDER;

std::unique_ptr<Library> Open(const std::string& kind, std::string& error) {
  LibraryPlaces places;
  places.named = kFakes + "/" + kind;
  return Library::Open(places, error);
}

struct ProductCase {
  int m = 5;
  int n = 24;
  int k = 72;
  bool bias = false;
  bool out_float32 = false;
  bool accumulate = false;
  bool relu = false;
  float scale = 1.0f;
  float softcap = 0.0f;
};

class CudaFastProducts : public testing::Test {
 protected:
  CudaFastProducts() {
    std::string error;
    library_ = Open("good", error);
    EXPECT_NE(library_, nullptr) << error;
    file_ = OpenLibraryFile(library_->path(), error);
    Order({});
    workspace_ = bed_.New<std::byte>(FastProducts::kWorkspaceBytes);
  }
  template <class Function>
  Function Get(const char* name) const {
    return reinterpret_cast<Function>(file_->Symbol(name));
  }
  void Order(const FakeCublasLtOrders& orders) const {
    Get<decltype(&fake_cublaslt_set)>("fake_cublaslt_set")(&orders);
  }
  FakeCublasLtCounts Counts() const {
    FakeCublasLtCounts counts;
    Get<decltype(&fake_cublaslt_read)>("fake_cublaslt_read")(&counts);
    return counts;
  }
  std::unique_ptr<FastProducts> Make() {
    bed_.runtime().SetTimes(kOurSeconds, their_seconds_);
    return std::make_unique<FastProducts>(*library_, bed_.runtime(), bed_.stream(), workspace_);
  }

  GemmParams Params(const ProductCase& c) {
    GemmParams params;
    params.m = c.m;
    params.n = c.n;
    params.k = c.k;
    params.x = bed_.Put(RandomBf16(static_cast<size_t>(c.m) * c.k, 1));
    params.weight = bed_.Put(RandomBf16(static_cast<size_t>(c.n) * c.k, 2));
    if (c.bias) params.bias = bed_.Put(RandomFloats(static_cast<size_t>(c.n), 3));
    params.out_stride = c.n + 8;
    params.out_float32 = c.out_float32;
    params.accumulate = c.accumulate;
    params.relu = c.relu;
    params.scale = c.scale;
    params.softcap = c.softcap;
    params.workspace = bed_.New<float>(GemmWorkspaceBytes(c.m, c.n, c.k) / sizeof(float));
    params.counters = bed_.Put(std::vector<uint32_t>(GemmCounters(c.m, c.n), 0));
    NewOut(c, params);
    return params;
  }
  // What is there already: numbers to be added to.
  void NewOut(const ProductCase& c, GemmParams& params) {
    const auto there = RandomBf16(static_cast<size_t>(c.m) * params.out_stride, 4);
    std::vector<float> wide;
    for (const uint16_t bits : there) wide.push_back(Widen(bits));
    params.out = c.out_float32 ? static_cast<void*>(bed_.Put(wide)) : bed_.Put(there);
  }
  std::vector<float> Out(const ProductCase& c, const GemmParams& params) {
    const size_t count = static_cast<size_t>(c.m) * static_cast<size_t>(params.out_stride);
    if (c.out_float32) return bed_.Get(static_cast<float*>(params.out), count);
    std::vector<float> wide;
    for (const uint16_t bits : bed_.Get(static_cast<uint16_t*>(params.out), count)) {
      wide.push_back(Widen(bits));
    }
    return wide;
  }

  static constexpr double kOurSeconds = 0.125;  // of a product, by the device's clock

  DeviceBed bed_;
  std::unique_ptr<Library> library_;
  std::unique_ptr<SharedLibrary> file_;
  std::byte* workspace_ = nullptr;
  double their_seconds_ = 0.0625;
};

TEST_F(CudaFastProducts, HaveTheMeaningOfOurOwnKernel) {
  const auto fast = Make();
  for (const bool out_float32 : {false, true}) {
    for (const ProductCase& c :
         {ProductCase{}, ProductCase{.m = 1}, ProductCase{.m = 17, .accumulate = out_float32},
          ProductCase{.bias = out_float32}, ProductCase{.bias = out_float32, .relu = true},
          ProductCase{.bias = out_float32, .accumulate = out_float32},
          ProductCase{.scale = 0.25f}}) {
      ProductCase own = c;
      own.out_float32 = out_float32;
      GemmParams params = Params(own);
      fast->SetTuning(true);
      ASSERT_TRUE(fast->Launch(params));
      fast->SetTuning(false);
      NewOut(own, params);
      ASSERT_TRUE(fast->Launch(params));
      const auto got = Out(own, params);
      NewOut(own, params);
      bed_.Check(LaunchGemm(bed_.runtime(), bed_.stream(), params));
      const auto expected = Out(own, params);
      for (size_t i = 0; i < got.size(); ++i) {
        const double rounding = out_float32 ? 1e-4 : 2 * Bf16Rounding(expected[i]) + 1e-2;
        ASSERT_NEAR(got[i], expected[i], rounding) << i;
      }
    }
  }
}

TEST_F(CudaFastProducts, WhatTheLibraryDoesOtherwiseIsOurOwnKernels) {
  const auto fast = Make();
  fast->SetTuning(true);
  const QuantisedWeight layout = QuantisedLayout(DType::kQ8_0, 64);
  for (const ProductCase& c :
       {ProductCase{.softcap = 30.0f}, ProductCase{.accumulate = true, .relu = true},
        ProductCase{.bias = true, .out_float32 = true, .scale = 0.5f}, ProductCase{.bias = true}}) {
    EXPECT_FALSE(fast->Launch(Params(c)));
  }
  GemmParams quantised = Params({.k = 64});
  quantised.quantised = layout;
  quantised.quantised.data = reinterpret_cast<const unsigned char*>(quantised.weight);
  EXPECT_FALSE(fast->Launch(quantised));
  EXPECT_EQ(Counts().heuristics, 0);
}

TEST_F(CudaFastProducts, AShapeIsSearchedAndTimedOnceAndNeverOutsideTuning) {
  const auto fast = Make();
  const ProductCase c{.m = 5};
  EXPECT_FALSE(fast->Launch(Params(c)));
  EXPECT_EQ(Counts().heuristics, 0);
  fast->SetTuning(true);
  EXPECT_TRUE(fast->Launch(Params(c)));
  const int timed = Counts().products;
  EXPECT_EQ(Counts().heuristics, 1);
  // Rows of the same power of two, whatever the operands.
  for (const int rows : {5, 6, 7, 8}) EXPECT_TRUE(fast->Launch(Params({.m = rows})));
  EXPECT_EQ(Counts().heuristics, 1);
  EXPECT_EQ(Counts().products, timed + 4);
  EXPECT_TRUE(fast->Launch(Params({.m = 9})));
  EXPECT_EQ(Counts().heuristics, 2);
  fast->SetTuning(false);
  const int before = Counts().products;
  EXPECT_TRUE(fast->Launch(Params({.m = 12})));
  EXPECT_FALSE(fast->Launch(Params({.m = 33})));
  EXPECT_EQ(Counts().products, before + 1);
  EXPECT_EQ(Counts().heuristics, 2);
  EXPECT_EQ(fast->tuned(), 2);
  EXPECT_EQ(fast->used(), 2);
}

// As parts of a weight write, whose rows begin within the result.
TEST_F(CudaFastProducts, OperandsAreNoBetterAlignedThanTheLibraryIsTold) {
  const auto fast = Make();
  fast->SetTuning(true);
  const GemmParams whole = Params({});
  GemmParams part = whole;
  part.out = static_cast<uint16_t*>(whole.out) + 8;
  ASSERT_EQ(reinterpret_cast<uintptr_t>(whole.out) % 256, 0u);
  EXPECT_TRUE(fast->Launch(whole));
  EXPECT_TRUE(fast->Launch(part)) << "with an algorithm for what is aligned to 16 bytes";
  EXPECT_TRUE(fast->Launch(whole));
  EXPECT_EQ(fast->tuned(), 2);
  GemmParams narrow = whole;
  narrow.out_stride -= 8;
  EXPECT_TRUE(fast->Launch(narrow));
  EXPECT_EQ(fast->tuned(), 3) << "rows that lie otherwise are another shape";
  GemmParams biased = Params({.bias = true, .out_float32 = true});
  EXPECT_TRUE(fast->Launch(biased));
  biased.bias += 1;
  EXPECT_FALSE(fast->Launch(biased));
}

TEST_F(CudaFastProducts, WhatIsSlowerOrFailsIsOurOwnKernels) {
  struct Trouble {
    FakeCublasLtOrders orders;
    const char* what;
  };
  for (const Trouble& trouble :
       {Trouble{{.heuristic_code = 15}, "no algorithm"}, Trouble{{.algorithms = 0}, "none found"},
        Trouble{{.algorithms = 1}, "more workspace than there is"},
        Trouble{{.fails_below_rows = 100}, "not supported"}}) {
    SCOPED_TRACE(trouble.what);
    Order(trouble.orders);
    const auto fast = Make();
    fast->SetTuning(true);
    EXPECT_FALSE(fast->Launch(Params({})));
    EXPECT_EQ(fast->used(), 0);
    EXPECT_EQ(fast->tuned(), 1);
  }
  Order({});
  for (const double seconds : {0.125, 0.25}) {  // no faster, slower
    their_seconds_ = seconds;
    const auto fast = Make();
    fast->SetTuning(true);
    EXPECT_FALSE(fast->Launch(Params({})));
    EXPECT_EQ(fast->used(), 0);
    EXPECT_EQ(fast->TimingOf(Params({})).own, kOurSeconds * 1e6);
    EXPECT_EQ(fast->TimingOf(Params({})).library, seconds * 1e6) << "also where it is slower";
    EXPECT_EQ(fast->TimingOf(Params({.m = 9})).own, 0.0) << "another shape";
  }
  their_seconds_ = 0.0625;
  // Good for the rows that were timed, not for fewer of the same class.
  Order({.fails_below_rows = 7});
  const auto fast = Make();
  fast->SetTuning(true);
  EXPECT_TRUE(fast->Launch(Params({.m = 8})));
  EXPECT_FALSE(fast->Launch(Params({.m = 5})));
  EXPECT_FALSE(fast->Launch(Params({.m = 8}))) << "one answer for a class, once it has failed";
}

TEST_F(CudaFastProducts, NothingIsLeftOpen) {
  const int before = Counts().open;
  {
    const auto fast = Make();
    fast->SetTuning(true);
    fast->Launch(Params({}));
    EXPECT_EQ(Counts().open, before + 1) << "the handle";
  }
  EXPECT_EQ(Counts().open, before);
}

TEST_F(CudaFastProducts, ALibraryThatCannotBeginIsALine) {
  Order({.create_code = 1});
  const auto fast = Make();
  EXPECT_NE(fast->error().find("cublasLtCreate says CUBLAS_STATUS_NOT_INITIALIZED (1)"),
            std::string::npos)
      << fast->error();
  fast->SetTuning(true);
  EXPECT_FALSE(fast->Launch(Params({})));
}

TEST(CudaCublasLt, IsRefusedWhenItLacksSomethingOrIsOfAnotherMajorVersion) {
  std::string error;
  EXPECT_NE(Open("good", error), nullptr) << error;
  EXPECT_EQ(Open("lacking", error), nullptr);
  EXPECT_NE(error.find("it has no cublasLtMatmul)"), std::string::npos) << error;
  EXPECT_EQ(Open("old", error), nullptr);
  EXPECT_NE(error.find("it is cuBLASLt 12.9.1"), std::string::npos) << error;
  EXPECT_EQ(Open("nowhere", error), nullptr);
  EXPECT_NE(error.find("libcublasLt.so.13 cannot be used"), std::string::npos) << error;
}

}  // namespace
}  // namespace quire::kernels::cuda::test
