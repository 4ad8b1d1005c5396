// Codes of activations and their products with codes of weights: the codes and int32 sums of a
// scalar model, bits that no other row changes, and the float64 meaning of e4m3.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/rows/encode_rows.h"
#include "kernels/kv_fp8.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cuda::test {
namespace {

struct Codes {
  std::vector<uint8_t> codes;  // [rows, width]
  std::vector<float> scales;   // [rows, groups]
};

// The definition of encode_rows.h, one element after another.
Codes Encode(const std::vector<uint16_t>& x, const EncodeRowsParams& as) {
  Codes made;
  const int group = as.by_group ? kEncodeGroup : as.width;
  for (int row = 0; row < as.rows; ++row) {
    for (int k = 0; k < as.width; ++k) {
      const auto at = [&](int i) {
        return Widen(x[static_cast<size_t>(row) * as.width + i], as.half);
      };
      if (k % group == 0) {
        float largest = 0.0f;
        bool finite = true;
        for (int i = k; i < std::min(k + group, as.width); ++i) {
          finite = finite && std::isfinite(at(i));
          largest = std::max(largest, std::abs(static_cast<float>(at(i))));
        }
        float scale = as.scale > 0.0f ? as.scale : largest / (as.e4m3 ? 448.0f : 127.5f);
        if (as.scale == 0.0f && scale < FLT_MIN) scale = 0.0f;
        made.scales.push_back(finite ? scale : NAN);
      }
      const float scale = made.scales.back();
      uint8_t code = 0;
      if (scale > 0.0f) {
        const float q = static_cast<float>(at(k)) / scale;
        code = as.e4m3 ? ToFp8(q)
                       : static_cast<uint8_t>(
                             static_cast<int8_t>(std::nearbyint(std::clamp(q, -128.0f, 127.0f))));
      }
      made.codes.push_back(code);
    }
  }
  return made;
}

Codes EncodeOnDevice(DeviceBed& bed, const std::vector<uint16_t>& x, EncodeRowsParams as) {
  const int groups = as.by_group ? (as.width + kEncodeGroup - 1) / kEncodeGroup : 1;
  const size_t count = static_cast<size_t>(as.rows) * as.width;
  as.in = bed.Put(x);
  as.codes = bed.New<uint8_t>(count);
  as.scales = bed.New<float>(static_cast<size_t>(as.rows) * groups);
  bed.Check(LaunchEncodeRows(bed.runtime(), bed.stream(), as));
  bed.Check(bed.runtime().Synchronize(bed.stream()));
  return {bed.Get(as.codes, count), bed.Get(as.scales, static_cast<size_t>(as.rows) * groups)};
}

TEST(CudaCodes, RowsAreEncodedAsTheFormatSays) {
  uint64_t seed = 1;
  for (int kind = 0; kind < 16; ++kind) {
    for (const int width : {32, 160, 2048, 8224}) {
      SCOPED_TRACE(std::to_string(kind) + " " + std::to_string(width));
      EncodeRowsParams as;
      as.rows = 6;
      as.width = width;
      as.half = (kind & 1) != 0;
      as.e4m3 = (kind & 2) != 0;
      as.by_group = (kind & 4) != 0;
      as.scale = (kind & 8) != 0 ? 0.01f : 0.0f;
      DeviceBed bed(++seed);
      std::vector<uint16_t> x = RandomNarrow(static_cast<size_t>(as.rows) * width, seed, as.half);
      std::fill_n(x.begin() + width, width, 0);                     // a row of zeros
      x[2 * width + 7] = as.half ? 0x7c00 : 0x7f80;                 // an infinity
      x[3 * width + 31] = as.half ? 0x7e00 : 0x7fc0;                // a NaN
      std::fill_n(x.begin() + 4 * width, width, uint16_t{0x0001});  // subnormal
      const Codes expected = Encode(x, as);
      const Codes got = EncodeOnDevice(bed, x, as);
      ASSERT_EQ(got.codes, expected.codes);
      for (size_t i = 0; i < got.scales.size(); ++i) {
        if (std::isnan(expected.scales[i])) {
          ASSERT_TRUE(std::isnan(got.scales[i])) << i;
        } else {
          ASSERT_EQ(got.scales[i], expected.scales[i]) << i;
        }
      }
    }
  }
}

TEST(CudaCodes, WidthsThatAreNotServedAreRefused) {
  DeviceBed bed;
  EncodeRowsParams as;
  as.rows = 1;
  for (const int width : {0, 48, kMostEncoded + 32}) {
    as.width = width;
    EXPECT_NE(LaunchEncodeRows(bed.runtime(), bed.stream(), as), "") << width;
  }
}

// Random codes of both sides, on one device.
class CodesBed {
 public:
  CodesBed(DType type, int n, int k, int m, bool groups, uint64_t seed)
      : bed_(seed), n_(n), k_(k), groups_(groups), store_(static_cast<uint32_t>(seed)) {
    WeightSource source = store_.Random(type, n, k, 1.0f);
    auto* block = const_cast<std::byte*>(source.data);
    const int64_t per_row = k / 32;
    const int64_t step_blocks = groups ? 4 : per_row;
    for (int64_t i = 0; i < n * per_row; ++i) {
      std::byte* const own = block + i * BlockBytes(type);
      if (type == DType::kG8) own[4] = std::byte{0};
      const int64_t in_row = i % per_row;
      memcpy(own, own - in_row % step_blocks * BlockBytes(type), 4);
      if (type == DType::kG8 && i == 0) own[5] = std::byte{0x80};
    }
    source_ = source;
    layout_ = LayoutByCodes(type, k, !groups);
    std::vector<std::byte> packed(QuantisedBytes(layout_, n));
    PackByCodes(source, layout_, 0, packed.data());
    packed_bytes = packed.size();
    layout_.data = reinterpret_cast<const unsigned char*>(bed_.Put(packed));
    std::mt19937 random(static_cast<uint32_t>(seed));
    for (int i = 0; i < m * k; ++i) {
      auto code = static_cast<uint8_t>(random());
      if (type == DType::kF8 && (code & 127) == 127) code = 0;
      codes.push_back(code);
    }
    for (int i = 0; i < m * CodeGroups(); ++i) {
      scales.push_back(0.001f + 0.0001f * static_cast<float>(random() % 100));
    }
    codes_ = bed_.Put(codes);
    scales_ = bed_.Put(scales);
  }

  int CodeGroups() const { return groups_ ? (k_ + 127) / 128 : 1; }
  DeviceBed& bed() { return bed_; }
  const WeightSource& source() const { return source_; }
  const std::byte* Block(int row, int k) const {
    return source_.Row(row) + k / 32 * BlockBytes(source_.type);
  }

  std::vector<float> Run(int m, int multiprocessors = kGemmMultiprocessors, bool narrow = false) {
    GemmParams params;
    params.codes = codes_;
    params.code_scales = scales_;
    params.code_groups = CodeGroups();
    params.quantised = layout_;
    const size_t count = static_cast<size_t>(m) * n_;
    auto* out = bed_.New<float>(count);
    params.out = out;
    params.out_float32 = !narrow;
    params.m = m;
    params.n = n_;
    params.k = k_;
    params.multiprocessors = multiprocessors;
    params.workspace = bed_.New<float>(GemmWorkspaceBytes(m, n_, k_) / sizeof(float));
    params.counters = bed_.Put(std::vector<uint32_t>(GemmCounters(m, n_), 0));
    bed_.Check(LaunchGemm(bed_.runtime(), bed_.stream(), params));
    bed_.Check(bed_.runtime().Synchronize(bed_.stream()));
    return narrow ? std::vector<float>() : bed_.Get(out, count);
  }

  std::vector<uint8_t> codes;
  std::vector<float> scales;
  size_t packed_bytes = 0;

 private:
  DeviceBed bed_;
  int n_;
  int k_;
  bool groups_;
  kernels::test::WeightStore store_;
  WeightSource source_;
  QuantisedWeight layout_;
  const uint8_t* codes_ = nullptr;
  const float* scales_ = nullptr;
};

TEST(CudaCodes, SumsOfInt8AreExact) {
  for (const int k : {96, 1184, 4640}) {
    const int n = 136;
    CodesBed bed(DType::kG8, n, k, 40, false, 50 + static_cast<uint64_t>(k));
    const auto got = bed.Run(40);
    for (int m = 0; m < 40; ++m) {
      for (int row = 0; row < n; ++row) {
        int64_t sum = 0;
        for (int i = 0; i < k; ++i) {
          sum += static_cast<int8_t>(bed.codes[static_cast<size_t>(m) * k + i]) *
                 static_cast<int8_t>(bed.Block(row, i)[5 + i % 32]);
        }
        float step;
        memcpy(&step, bed.Block(row, 0), 4);
        ASSERT_EQ(got[static_cast<size_t>(m) * n + row],
                  static_cast<float>(static_cast<int32_t>(sum)) * (bed.scales[m] * step))
            << m << " " << row;
      }
    }
  }
}

TEST(CudaCodes, ProductsOfE4m3AreTheirFloat64Products) {
  for (const bool groups : {false, true}) {
    for (const int k : {96, 1184}) {
      const int n = 136;
      CodesBed bed(DType::kF8, n, k, 9, groups, 80 + static_cast<uint64_t>(k));
      const auto got = bed.Run(9);
      for (int m = 0; m < 9; ++m) {
        for (int row = 0; row < n; ++row) {
          double sum = 0.0;
          double magnitude = 0.0;
          for (int i = 0; i < k; ++i) {
            float step;
            memcpy(&step, bed.Block(row, i), 4);
            const double scale = bed.scales[m * bed.CodeGroups() + (groups ? i / 128 : 0)];
            const double product =
                static_cast<double>(FromFp8(bed.codes[static_cast<size_t>(m) * k + i])) *
                FromFp8(static_cast<uint8_t>(bed.Block(row, i)[4 + i % 32])) * scale * step;
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_NEAR(got[m * n + row], sum, magnitude * (k / 32 + 8) * 0x1p-24) << m << " " << row;
        }
      }
    }
  }
}

TEST(CudaCodes, BitsOfARowAreTheSameAtEveryNumberOfRows) {
  for (const DType type : {DType::kG8, DType::kF8}) {
    for (const bool groups : {false, true}) {
      if (groups && type == DType::kG8) continue;
      CodesBed bed(type, 40, 4640, 130, groups, 7);
      const auto whole = bed.Run(130);
      for (const int m : {1, 2, 7, 8, 9, 31, 32, 33, 64}) {
        const auto part = bed.Run(m);
        ASSERT_EQ(memcmp(part.data(), whole.data(), part.size() * sizeof(float)), 0) << m;
      }
      const auto one_block = bed.Run(3, 1);
      ASSERT_EQ(memcmp(one_block.data(), whole.data(), one_block.size() * sizeof(float)), 0);
    }
  }
}

TEST(CudaCodes, KeepsItsBudget) {
  struct Shape {
    DType type;
    int m;
    const char* kernel;
  };
  for (const Shape& s :
       {Shape{DType::kG8, 8, "gemm_i8_8"}, Shape{DType::kG8, 32, "gemm_i8_32"},
        Shape{DType::kG8, 128, "gemm_i8_128"}, Shape{DType::kF8, 8, "gemm_e8_8"},
        Shape{DType::kF8, 32, "gemm_e8_32"}, Shape{DType::kF8, 64, "gemm_e8_64"}}) {
    const int n = 128;
    const int k = 512;
    CodesBed bed(s.type, n, k, s.m, false, 6);
    bed.Run(s.m, kGemmMultiprocessors, true);
    const double bytes = static_cast<double>(bed.packed_bytes) + 1.0 * s.m * k + 2.0 * s.m * n;
    ExpectWithinBudget(bed.bed().runtime(), s.kernel, bytes,
                       static_cast<double>(s.m) * n * k / (16 * 8 * 32));
  }
  for (const auto& [width, kernel] :
       {std::pair{2048, "encode_rows_narrow"}, std::pair{16384, "encode_rows_wide"}}) {
    EncodeRowsParams as;
    as.rows = 8;
    as.width = width;
    DeviceBed bed(9);
    EncodeOnDevice(bed, RandomNarrow(static_cast<size_t>(as.rows) * width, 9, false), as);
    ExpectWithinBudget(bed.runtime(), kernel, 3.0 * as.rows * width + 32.0 * as.rows, 0);
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
