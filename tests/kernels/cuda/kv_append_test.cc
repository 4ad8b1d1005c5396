// Keys and values in pages of float16 and fp8: the bytes that the CPU backend's arithmetic gives
// for the same inputs.
#include <cmath>

#include "kernels/cuda/ops/attention/rope_append.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/kv_head.h"

namespace quire::kernels::cuda::test {
namespace {

constexpr int kHeads = 3;
constexpr int kKvHeads = 2;
constexpr int kPages = 5;
constexpr int kShift = 4;

int Position(int token) { return (token * 5 + 2) % 64; }
int Page(int token) { return (Position(token) >> kShift) + 1; }

class AppendBed {
 public:
  AppendBed(KvType type, int head_dim, uint64_t seed)
      : page(type, head_dim, kKvHeads, 1 << kShift), type_(type), head_dim_(head_dim), bed_(seed) {
    const int half = head_dim / 2;
    for (int p = 0; p < 64; ++p) {
      for (int i = 0; i < 2 * half; ++i) {
        const double angle = p * std::pow(10000.0, -1.0 * (i % half) / half);
        angles_.push_back(static_cast<float>(i < half ? std::cos(angle) : std::sin(angle)));
      }
    }
  }

  DeviceBed& bed() { return bed_; }
  int Width() const { return (kHeads + 2 * kKvHeads) * head_dim_; }

  // The pool that begins as 0xff everywhere.
  std::vector<unsigned char> Run(const std::vector<float>& qkv) {
    const int tokens = static_cast<int>(qkv.size()) / Width();
    std::vector<int32_t> positions;
    std::vector<int32_t> pages;
    for (int t = 0; t < tokens; ++t) {
      positions.push_back(Position(t));
      pages.push_back(Page(t));
    }
    auto* pool = bed_.New<unsigned char>(kPages * page.bytes);
    RopeAppendParams params;
    params.qkv = bed_.Put(qkv);
    params.q = bed_.New<uint16_t>(static_cast<size_t>(tokens) * kHeads * head_dim_);
    params.stride = Width();
    params.tokens = tokens;
    params.positions = bed_.Put(positions);
    params.pages = bed_.Put(pages);
    params.angles = bed_.Put(angles_);
    params.rotary_dim = head_dim_;
    params.block_shift = kShift;
    params.heads = kHeads;
    params.kv_heads = kKvHeads;
    page.Fill(type_, pool, params);
    bed_.Check(LaunchRopeAppend(bed_.runtime(), bed_.stream(), head_dim_, params));
    return bed_.Get(pool, kPages * page.bytes);
  }

  // Key or value `head` of a token in float32, in the order of the CPU's operations.
  std::vector<float> Head(const std::vector<float>& qkv, int token, bool value, int head) const {
    const size_t first =
        static_cast<size_t>(token) * Width() + (kHeads + (value ? kKvHeads : 0) + head) * head_dim_;
    std::vector<float> x;
    for (int d = 0; d < head_dim_; ++d) x.push_back(qkv[first + d]);
    if (value) return x;
    const int half = head_dim_ / 2;
    const float* angles = angles_.data() + Position(token) * head_dim_;
    std::vector<float> y(x);
    for (int i = 0; i < half; ++i) {
      const float cosine = angles[i];
      const float sine = angles[half + i];
      y[i] = std::fma(x[i], cosine, -(x[half + i] * sine));
      y[half + i] = std::fma(x[half + i], cosine, x[i] * sine);
    }
    return y;
  }

  // The whole pool as it has to be.
  std::vector<unsigned char> Expected(const std::vector<float>& qkv) const {
    std::vector<unsigned char> pool(kPages * page.bytes, 0xff);
    for (int t = 0; t < static_cast<int>(qkv.size()) / Width(); ++t) {
      unsigned char* to = pool.data() + Page(t) * page.bytes;
      const int slot = Position(t) % (1 << kShift);
      for (int h = 0; h < kKvHeads; ++h) {
        for (const bool value : {false, true}) {
          const KvHead head = StoredHead(type_, Head(qkv, t, value, h));
          memcpy(to + page.Place(value, h, slot), head.bytes.data(), head.bytes.size());
          if (type_ != KvType::kFp8) continue;
          const size_t scales = value ? page.value_scales : page.key_scales;
          memcpy(to + scales + 4 * ((h << kShift) + slot), &head.scale, 4);
        }
      }
    }
    return pool;
  }

  const KvPage page;

 private:
  KvType type_;
  int head_dim_;
  std::vector<float> angles_;
  DeviceBed bed_;
};

TEST(CudaKvAppend, PagesHoldTheBytesOfTheCpusArithmetic) {
  uint64_t seed = 1;
  for (const KvType type : {KvType::kF16, KvType::kFp8}) {
    for (const int head_dim : {8, 64, 88, 128, 256, 264, 512}) {
      SCOPED_TRACE(static_cast<int>(type) * 1000 + head_dim);
      AppendBed bed(type, head_dim, ++seed);
      const auto qkv = RandomFloats(static_cast<size_t>(11) * bed.Width(), seed);
      ASSERT_EQ(bed.Run(qkv), bed.Expected(qkv));
    }
  }
}

TEST(CudaKvAppend, HeadsOfZerosAndOfWhatIsNoNumber) {
  AppendBed bed(KvType::kFp8, 64, 20);
  auto qkv = RandomFloats(static_cast<size_t>(4) * bed.Width(), 21);
  const auto value = [&](int token, int head) {
    return qkv.begin() + token * bed.Width() + (kHeads + kKvHeads + head) * 64;
  };
  std::fill_n(value(0, 0), 64, 0.0f);
  std::fill_n(value(0, 1), 64, 1e-35f);
  value(1, 0)[17] = NAN;
  value(2, 1)[63] = -INFINITY;
  value(3, 0)[5] = 3e38f;
  const auto pool = bed.Run(qkv);
  const auto scale = [&](int token, int head) {
    float x;
    memcpy(&x,
           &pool[Page(token) * bed.page.bytes + bed.page.value_scales +
                 4 * ((head << kShift) + Position(token) % 16)],
           4);
    return x;
  };
  const auto codes = [&](int token, int head) {
    const auto* at =
        &pool[Page(token) * bed.page.bytes + bed.page.Place(true, head, Position(token) % 16)];
    return std::vector<unsigned char>(at, at + 64);
  };
  EXPECT_EQ(scale(0, 0), 0.0f);
  EXPECT_EQ(scale(0, 1), 0.0f);
  EXPECT_EQ(codes(0, 0), std::vector<unsigned char>(64, 0));
  EXPECT_TRUE(std::isnan(scale(1, 0)));
  EXPECT_TRUE(std::isnan(scale(2, 1)));
  EXPECT_FALSE(std::isnan(scale(1, 1)));
  EXPECT_GT(scale(3, 0), 1e35f);
  for (int t = 0; t < 4; ++t) {
    for (int h = 0; h < kKvHeads; ++h) {
      for (const unsigned char code : codes(t, h)) ASSERT_NE(code & 0x7f, 0x7f);
    }
  }
}

TEST(CudaKvAppend, WhatIsBeyondFloat16IsItsLargest) {
  AppendBed bed(KvType::kF16, 64, 22);
  auto qkv = RandomFloats(static_cast<size_t>(4) * bed.Width(), 23);
  const float beyond[] = {65504.0f, 65600.0f, -70000.0f, 3e38f, INFINITY, -INFINITY, NAN};
  const int first = kHeads * 64;
  for (int i = 0; i < 7; ++i) {
    qkv[first + 32 * i] = beyond[i];                   // a key
    qkv[first + (kKvHeads * 64) + 5 * i] = beyond[i];  // a value
  }
  const auto pool = bed.Run(qkv);
  ASSERT_EQ(pool, bed.Expected(qkv));
  const auto value_at = [&](int element) {
    uint16_t bits = 0;
    memcpy(&bits,
           &pool[Page(0) * bed.page.bytes + bed.page.Place(true, 0, Position(0) % 16) +
                 2 * static_cast<size_t>(element)],
           2);
    return device::ToFloat(device::F16{bits});
  };
  EXPECT_EQ(value_at(5), 65504.0f);
  EXPECT_EQ(value_at(10), -65504.0f);
  EXPECT_EQ(value_at(20), 65504.0f);
  EXPECT_EQ(value_at(25), -65504.0f);
  EXPECT_TRUE(std::isnan(value_at(30)));
}

TEST(CudaKvAppend, KeepsItsBudget) {
  struct Shape {
    KvType type;
    int head_dim;
    const char* kernel;
  };
  for (const Shape& s : {Shape{KvType::kF16, 64, "rope_append_f16_64"},
                         Shape{KvType::kF16, 128, "rope_append_f16_128"},
                         Shape{KvType::kF16, 256, "rope_append_f16_256"},
                         Shape{KvType::kF16, 512, "rope_append_f16_512"},
                         Shape{KvType::kFp8, 64, "rope_append_fp8_64"},
                         Shape{KvType::kFp8, 128, "rope_append_fp8_128"},
                         Shape{KvType::kFp8, 256, "rope_append_fp8_256"},
                         Shape{KvType::kFp8, 512, "rope_append_fp8_512"}}) {
    DeviceBed bed(30);
    const int heads = 32;
    const int kv_heads = 8;
    const int tokens = 16;
    const int width = (heads + 2 * kv_heads) * s.head_dim;
    const KvPage page(s.type, s.head_dim, kv_heads, 16);
    RopeAppendParams params;
    params.qkv = bed.Put(RandomFloats(static_cast<size_t>(tokens) * width, 31));
    params.q = bed.New<uint16_t>(static_cast<size_t>(tokens) * heads * s.head_dim);
    params.stride = width;
    params.tokens = tokens;
    std::vector<int32_t> positions;
    for (int t = 0; t < tokens; ++t) positions.push_back(t);
    params.positions = bed.Put(positions);
    params.pages = bed.Put(std::vector<int32_t>(tokens, 0));
    params.angles = bed.Put(std::vector<float>(static_cast<size_t>(tokens) * s.head_dim, 0.5f));
    params.rotary_dim = s.head_dim;
    params.heads = heads;
    params.kv_heads = kv_heads;
    page.Fill(s.type, bed.New<unsigned char>(page.bytes), params);
    bed.Check(LaunchRopeAppend(bed.runtime(), bed.stream(), s.head_dim, params));
    bed.Check(bed.runtime().Synchronize(bed.stream()));
    // A token's scale has a sector of 32 bytes to itself: its neighbours are other tokens'.
    const double pages =
        2.0 * kv_heads * (s.head_dim * page.element + (s.type == KvType::kFp8 ? 32 : 0));
    ExpectWithinBudget(
        bed.runtime(), s.kernel,
        tokens * (4.0 * width + 2.0 * heads * s.head_dim + pages + 4.0 * s.head_dim + 8), 0);
  }
}

TEST(CudaKvAppend, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  RopeAppendParams params;
  params.tokens = 1;
  params.type = KvType::kF32;
  EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), 64, params), "");
  params.type = KvType::kFp8;
  for (const int stride : {56, 68}) {
    params.token_stride = stride;
    EXPECT_NE(LaunchRopeAppend(bed.runtime(), bed.stream(), 64, params), "");
  }
}

}  // namespace
}  // namespace quire::kernels::cuda::test
