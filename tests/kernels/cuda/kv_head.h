// One head's key or value of a token as pages of each type store it, from the arithmetic that the
// CPU backend has too.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/emulate/random.h"
#include "kernels/kv_fp8.h"
#include "kernels/kv_layout.h"

namespace quire::kernels::cuda::test {

struct KvHead {
  std::vector<unsigned char> bytes;
  float scale = 0.0f;           // of fp8
  std::vector<double> meaning;  // what the bytes say
};

// What float16 holds at most; a NaN stays one.
inline float Within(float x) {
  return std::isnan(x) ? x : std::clamp(x, -kF16Largest, kF16Largest);
}

inline KvHead StoredHead(KvType type, const std::vector<float>& x) {
  KvHead head;
  float largest = 0.0f;
  bool finite = true;
  for (const float v : x) {
    finite = finite && std::isfinite(v);
    largest = std::max(largest, std::fabs(v));
  }
  const Fp8Scale scale = Fp8ScaleOf(largest, finite);
  head.scale = scale.scale;
  for (const float v : x) {
    if (type == KvType::kFp8) {
      head.bytes.push_back(ToFp8(v * scale.inverse));
      head.meaning.push_back(static_cast<double>(FromFp8(head.bytes.back())) * scale.scale);
      continue;
    }
    const bool half = type == KvType::kF16;
    const uint16_t bits = half ? device::F16Bits(Within(v)) : device::Bf16Bits(v);
    head.meaning.push_back(half ? device::ToFloat(device::F16{bits})
                                : device::ToFloat(device::Bf16{bits}));
    head.bytes.push_back(static_cast<unsigned char>(bits & 255u));
    head.bytes.push_back(static_cast<unsigned char>(bits >> 8));
  }
  return head;
}

// Fisher's and Yates' shuffle.
template <class T>
void Shuffle(std::vector<T>& all, emulate::Random& random) {
  for (size_t i = all.size(); i > 1; --i) {
    std::swap(all[i - 1], all[random.Below(static_cast<uint32_t>(i))]);
  }
}

// The numbers of `count` pages in random order.
inline std::vector<int32_t> ShuffledPages(size_t count, emulate::Random& random) {
  std::vector<int32_t> pages(count);
  std::iota(pages.begin(), pages.end(), 0);
  Shuffle(pages, random);
  return pages;
}

// Where the parts of one layer lie in a page, as kernels/kv_layout.h has them; strides of elements.
struct KvPage {
  KvPage(KvType type, int head_dim, int kv_heads, int tokens)
      : element(static_cast<size_t>(KvElementBytes(type))),
        token_stride(static_cast<size_t>(head_dim + 15) / 16 * 16),
        head_stride(token_stride * static_cast<size_t>(tokens)),
        values(static_cast<size_t>(kv_heads) * head_stride * element),
        key_scales(2 * values),
        value_scales(key_scales + (type == KvType::kFp8 ? 4u * kv_heads * tokens : 0u)),
        bytes(2 * value_scales - key_scales) {}

  size_t element;
  size_t token_stride;
  size_t head_stride;
  size_t values;  // bytes from the page's first
  size_t key_scales;
  size_t value_scales;
  size_t bytes;

  size_t Place(bool value, int head, int token) const {
    return (value ? values : 0) +
           (static_cast<size_t>(head) * head_stride + static_cast<size_t>(token) * token_stride) *
               element;
  }
  template <class Params>
  void Fill(KvType type, unsigned char* pool, Params& params) const {
    params.type = type;
    params.keys = pool;
    params.values = pool + values;
    params.page_stride = static_cast<int64_t>(bytes / element);
    params.head_stride = static_cast<int64_t>(head_stride);
    params.token_stride = static_cast<int>(token_stride);
    params.key_scales = reinterpret_cast<float*>(pool + key_scales);
    params.value_scales = reinterpret_cast<float*>(pool + value_scales);
    params.scale_page_stride = static_cast<int64_t>(bytes / 4);
  }
};

}  // namespace quire::kernels::cuda::test
