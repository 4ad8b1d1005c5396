// Exact integer sums of the class w8a8: int8 codes of kG8 as pairs of int16 (rounded_form.h has
// their order), times pairs of x.
#pragma once

#include "kernels/cpu/decode.h"
#include "kernels/cpu/formats.h"

namespace quire::kernels::cpu {

// The bytes of four k as pairs of int16, each less its row's zero.
template <class V>
struct FourWords {
  typename V::I even;
  typename V::I odd;

  [[gnu::always_inline]] FourWords(const std::byte* values, int quad, typename V::I zeros) {
    const auto codes = V::LoadInt(values + 64 * quad);
    even = V::SubWords(V::EvenWords(codes), zeros);
    odd = V::SubWords(V::OddWords(codes), zeros);
  }
};

// Of kG8: the zero of each row in both words of its lane.
template <class V>
[[gnu::always_inline]] inline typename V::I ReadZeroWords(const std::byte* panel) {
  const auto zeros = V::LoadSignedBytes(panel + 64);
  return V::Or(V::And(zeros, V::SetInt(0xffffu)), V::template ShiftLeft<16>(zeros));
}

// totals[row][32] = sums over all K of kRows rows, which are the only tile.
template <class V, int kRows, int kPanels>
[[gnu::noinline]] void WordDirect(const std::byte* const (&panels)[kPanels], int64_t k,
                                  const int32_t* x, float* totals) {
  typename V::I sum[kRows][kPanels];
  typename V::I zeros[kPanels];
  Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
    zeros[p] = ReadZeroWords<V>(panels[p]);
    Unroll<kRows>([&](auto r) __attribute__((always_inline)) { sum[r][p] = V::SetInt(0); });
  });
  for (int64_t block = 0; block < k / kBlock; ++block, x += 16 * kRows) {
    ForEachQuad<V>([&](int quad) __attribute__((always_inline)) {
      Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
        const FourWords<V> w(ValuesOf<DType::kG8>(panels[p], block), quad, zeros[p]);
        Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
          const int32_t* const at = x + 2 * quad * kRows + r;
          V::DotWords(sum[r][p], w.even, V::SetInt(static_cast<uint32_t>(at[0])));
          V::DotWords(sum[r][p], w.odd, V::SetInt(static_cast<uint32_t>(at[kRows])));
        });
      });
    });
  }
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    Unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
      V::Store(totals + r * 32 + 16 * p, V::AsFloat(sum[r][p]));
    });
  });
}

// The words of a chunk of a panel: [k / 2][16].
template <class V>
[[gnu::noinline]] void ReadWordChunk(const std::byte* panel, int64_t begin, int64_t end,
                                     float* out) {
  const auto zeros = ReadZeroWords<V>(panel);
  for (int64_t block = begin / kBlock; block < end / kBlock; ++block) {
    const std::byte* values = ValuesOf<DType::kG8>(panel, block);
    for (int quad = 0; quad < 8; ++quad, out += 32) {
      const FourWords<V> w(values, quad, zeros);
      V::Store(out, V::AsFloat(w.even));
      V::Store(out + 16, V::AsFloat(w.odd));
    }
  }
}

// totals[row][32] = or += the integers of `pairs` pairs of k.
template <class V, int kRows>
[[gnu::noinline]] void WordTile(const int32_t* x, const float* weights, int pairs, bool first,
                                float* totals) {
  typename V::I sum[kRows];
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) { sum[r] = V::SetInt(0); });
  for (int pair = 0; pair < pairs; ++pair, x += kRows, weights += 16) {
    const auto w = V::AsInt(V::Load(weights));
    Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      V::DotWords(sum[r], w, V::SetInt(static_cast<uint32_t>(x[r])));
    });
  }
  Unroll<kRows>([&](auto r) __attribute__((always_inline)) {
    float* const total = totals + 32 * r;
    if (!first) sum[r] = V::AddInt(sum[r], V::AsInt(V::Load(total)));
    V::Store(total, V::AsFloat(sum[r]));
  });
}

}  // namespace quire::kernels::cpu
