// cuBLASLt beside our own kernels, on the same operands in the same run: how near our products come
// to it, and its rate in fp8, which no kernel here multiplies. Emulated, a library that stands in
// for it shows that the calls are right.
#include <algorithm>
#include <array>
#include <cstdio>

#include "kernels/cuda/cublaslt/fast_products.h"
#include "kernels/cuda/runtime/device_timer.h"
#include "kernels/kv_fp8.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/figures.h"
#include "tests/kernels/cuda/random_product.h"

namespace quire::kernels::cuda::test {
namespace {

using cublaslt::FastProducts;
using cublaslt::Functions;

class LibraryRates : public testing::Test {
 protected:
  void SetUp() override {
    LibraryPlaces places = UsualPlaces("", SearchPath());
    if (!Real()) places.named = std::string(QUIRE_FAKE_CUBLASLT_FOLDER) + "/good";
    std::string error;
    library_ = cublaslt::Library::Open(places, error);
    if (library_ == nullptr) {
      std::printf("not here: %s\n", error.c_str());
      GTEST_SKIP() << error;
    }
    workspace_ = bed_.New<std::byte>(FastProducts::kWorkspaceBytes);
  }
  bool Real() { return !bed_.runtime().counts(); }

  DeviceBed bed_;
  std::unique_ptr<cublaslt::Library> library_;
  std::byte* workspace_ = nullptr;
};

TEST_F(LibraryRates, OwnProductsBesideTheLibrarys) {
  FastProducts fast(*library_, bed_.runtime(), bed_.stream(), workspace_);
  ASSERT_EQ(fast.error(), "");
  fast.SetTuning(true);
  struct Shape {
    int rows, n, k;
  };
  std::vector<Shape> shapes = {{1, 24, 64}, {16, 24, 64}};
  if (Real()) {
    shapes = {{1, 14'336, 4096}, {16, 14'336, 4096}, {64, 14'336, 4096}, {4096, 4096, 4096}};
  }
  for (const Shape& shape : shapes) {
    const GemmParams params = RandomProduct(bed_, shape.rows, shape.n, shape.k);
    fast.Launch(params);
    const FastProducts::Timing timing = fast.TimingOf(params);
    ASSERT_GT(timing.own, 0.0) << shape.rows;
    ASSERT_GT(timing.library, 0.0) << shape.rows;
    const std::string of = "gemm_" + std::to_string(shape.rows) + "_rows";
    TellFigure(of + "_over_library", 100.0 * timing.library / timing.own, "%");
    const double flops = 2.0 * shape.rows * shape.n * shape.k;
    TellFigure("library_" + of, flops / timing.library * 1e6, "FLOP/s");
  }
}

// One product by the first algorithm that the library proposes.
class Fp8Product {
 public:
  Fp8Product(const Functions& f, int side, std::byte* workspace) : f_(f), workspace_(workspace) {
    const auto n = static_cast<uint64_t>(side);
    const uint64_t most = FastProducts::kWorkspaceBytes;
    Check(f.create(&handle_));
    Check(f.desc_create(&desc_, cublaslt::kComputeFloat32, cublaslt::kFloat32));
    Check(f.desc_set(desc_, cublaslt::kDescTransposeA, &cublaslt::kTranspose, 4));
    Check(f.layout_create(&in_, cublaslt::kFloat8, n, n, side));
    Check(f.layout_create(&out_, cublaslt::kBFloat16, n, n, side));
    Check(f.preference_create(&preference_));
    Check(f.preference_set(preference_, cublaslt::kPreferenceWorkspace, &most, sizeof(most)));
    if (code_ != cublaslt::kSuccess) return;
    std::array<cublaslt::Heuristic, 8> found{};
    int count = 0;
    Check(f.heuristic(handle_, desc_, in_, in_, out_, out_, preference_, 8, found.data(), &count));
    for (int i = 0; i < count && code_ == cublaslt::kSuccess; ++i) {
      const auto& one = found[static_cast<size_t>(i)];
      if (one.state != cublaslt::kSuccess || one.workspace_bytes > most) continue;
      algo_ = one.algo;
      found_ = true;
      break;
    }
  }
  ~Fp8Product() {
    if (preference_ != nullptr) f_.preference_destroy(preference_);
    for (cublaslt::MatrixLayout layout : {in_, out_}) {
      if (layout != nullptr) f_.layout_destroy(layout);
    }
    if (desc_ != nullptr) f_.desc_destroy(desc_);
    if (handle_ != nullptr) f_.destroy(handle_);
  }
  bool found() const { return found_; }
  cublaslt::Code code() const { return code_; }

  void Queue(const uint8_t* a, const uint8_t* b, uint16_t* out, void* stream) {
    const float one = 1.0f, zero = 0.0f;
    Check(f_.matmul(handle_, desc_, &one, a, in_, b, in_, &zero, out, out_, out, out_, &algo_,
                    workspace_, FastProducts::kWorkspaceBytes, stream));
  }

 private:
  void Check(cublaslt::Code code) {
    if (code_ == cublaslt::kSuccess) code_ = code;
  }

  const Functions& f_;
  std::byte* const workspace_;
  cublaslt::Handle handle_ = nullptr;
  cublaslt::MatmulDesc desc_ = nullptr;
  cublaslt::MatrixLayout in_ = nullptr, out_ = nullptr;
  cublaslt::Preference preference_ = nullptr;
  cublaslt::Algo algo_{};
  cublaslt::Code code_ = cublaslt::kSuccess;
  bool found_ = false;
};

TEST_F(LibraryRates, ProductsOfFp8) {
  const int side = Real() ? 4096 : 32;
  const auto count = static_cast<size_t>(side) * static_cast<size_t>(side);
  Fp8Product product(library_->functions(), side, workspace_);
  if (!product.found()) {
    std::printf("not here: cuBLASLt has no product of fp8 for this device (code %d)\n",
                product.code());
    GTEST_SKIP();
  }
  emulate::Random random(9);
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) {
    code = static_cast<uint8_t>(random.Next() >> 56);
    if ((code & 0x7f) == 0x7f) code = 0;  // no NaN
  }
  const uint8_t* a = bed_.Put(codes);
  std::reverse(codes.begin(), codes.end());
  const uint8_t* b = bed_.Put(codes);
  auto* out = bed_.New<uint16_t>(count);
  void* stream = bed_.runtime().NativeStream(bed_.stream());
  const auto queue = [&](int) {
    product.Queue(a, b, out, stream);
    return runtime::Error();
  };
  double seconds = 0.0;
  bed_.Check(runtime::TimeOnDevice(bed_.runtime(), bed_.stream(), {}, queue, &seconds));
  ASSERT_EQ(product.code(), cublaslt::kSuccess);
  TellFigure("library_gemm_fp8", 2.0 * side * static_cast<double>(count) / seconds, "FLOP/s");
  const std::vector<uint16_t> got = bed_.Get(out, count);
  for (size_t at = 0; at < count; at += count / 8 + 1) {
    double sum = 0.0, magnitude = 0.0;
    for (int k = 0; k < side; ++k) {
      const size_t row = at % static_cast<size_t>(side), column = at / static_cast<size_t>(side);
      const double term = static_cast<double>(FromFp8(codes[count - 1 - (row * side + k)])) *
                          FromFp8(codes[column * side + k]);
      sum += term;
      magnitude += std::abs(term);
    }
    // The tensor cores keep fewer bits of a sum of fp8 products than float32 has.
    EXPECT_NEAR(Widen(got[at]), sum, Bf16Rounding(sum) + magnitude * 0x1p-11) << at;
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
