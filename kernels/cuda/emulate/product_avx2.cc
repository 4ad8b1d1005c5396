#include "kernels/cuda/emulate/product.h"

#include <immintrin.h>

#include <cstdint>

namespace quire::kernels::cuda::emulate {
namespace {

using emulated::Element;

__m256i Words(const uint32_t* words) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
}

// The low halves of eight words, as float16 numbers.
__m256 FloatsOfHalves(__m256i words) {
  const __m256i low = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
  return _mm256_cvtph_ps(
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}

void StoreWide(__m256 floats, double* to) {
  _mm256_store_pd(to, _mm256_cvtps_pd(_mm256_castps256_ps128(floats)));
  _mm256_store_pd(to + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1)));
}

// The halves of eight words, each a number of two neighbours in k.
void Widen(const uint32_t* from, Element element, double* low, double* high) {
  const __m256i words = Words(from);
  if (element == Element::kBf16) {
    StoreWide(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), low);
    StoreWide(_mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536))), high);
  } else {
    StoreWide(FloatsOfHalves(words), low);
    StoreWide(FloatsOfHalves(_mm256_srli_epi32(words, 16)), high);
  }
}

bool AllFinite(const uint32_t (&a)[4][4][8], Element element) {
  const __m256i exponent = _mm256_set1_epi16(element == Element::kBf16 ? 0x7f80 : 0x7c00);
  __m256i found = _mm256_setzero_si256();
  for (const auto& part : a) {
    for (const auto& words : part) {
      const __m256i bits = _mm256_and_si256(Words(words), exponent);
      found = _mm256_or_si256(found, _mm256_cmpeq_epi16(bits, exponent));
    }
  }
  return _mm256_testz_si256(found, found) != 0;
}

// Columns whose sums the product leaves as they are, to the bit: those that b has nothing but zeros
// in, where no zero meets an infinity or a NaN and no sum is −0. Most columns of a batch of few
// rows are such.
uint32_t IdleColumns(const ProductTile& tile) {
  __m256i any = _mm256_setzero_si256();
  for (const auto& part : tile.b) {
    for (const auto& words : part) any = _mm256_or_si256(any, Words(words));
  }
  const __m256i size = _mm256_and_si256(any, _mm256_set1_epi32(0x7fff7fff));
  const __m256i none = _mm256_cmpeq_epi32(size, _mm256_setzero_si256());
  const auto idle = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(none)));
  return idle != 0 && !tile.minus_zero && AllFinite(tile.a, tile.element) ? idle : 0;
}

struct Wide {
  alignas(32) double a[16][16];  // k, row
  alignas(32) double b[16][8];   // k, column
};

// Products of two 11-bit numbers are exact in float64, so that a fused sum is the sum of the
// rounded product.
void MultiplyColumn(const ProductTile& tile, const Wide& wide, uint32_t column) {
  alignas(32) float sum[16];
  for (uint32_t g = 0; g < 8; ++g) {
    const float* d = tile.d[4 * g + column / 2] + column % 2;
    sum[g] = d[0];
    sum[g + 8] = d[2];
  }
  __m256d rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = _mm256_cvtps_pd(_mm_load_ps(sum + 4 * i));
  for (int k = 0; k < 16; ++k) {
    const __m256d b = _mm256_broadcast_sd(&wide.b[k][column]);
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_fmadd_pd(_mm256_load_pd(&wide.a[k][4 * i]), b, rows[i]);
    }
  }
  for (int i = 0; i < 4; ++i) _mm_store_ps(sum + 4 * i, _mm256_cvtpd_ps(rows[i]));
  for (uint32_t g = 0; g < 8; ++g) {
    float* d = tile.d[4 * g + column / 2] + column % 2;
    d[0] = sum[g];
    d[2] = sum[g + 8];
  }
}

}  // namespace

void GiveFragments(ProductTile& tile, uint32_t lane, float* d, const uint32_t* a,
                   const uint32_t* b) {
  const uint32_t g = lane / 4;
  const uint32_t t = lane % 4;
  for (uint32_t part = 0; part < 4; ++part) tile.a[part][t][g] = a[part];
  for (uint32_t part = 0; part < 2; ++part) tile.b[part][t][g] = b[part];
  tile.d[lane] = d;
  const __m128i sums = _mm_loadu_si128(reinterpret_cast<const __m128i*>(d));
  const __m128i minus = _mm_cmpeq_epi32(sums, _mm_set1_epi32(INT32_MIN));
  tile.minus_zero = tile.minus_zero || _mm_testz_si128(minus, minus) == 0;
}

void MultiplyTile(ProductTile& tile) {
  const uint32_t idle = IdleColumns(tile);
  tile.minus_zero = false;
  if (idle == 0xffu) return;
  Wide wide;
  for (uint32_t t = 0; t < 4; ++t) {
    for (uint32_t part = 0; part < 4; ++part) {
      const uint32_t k = 2 * t + part / 2 * 8;
      const uint32_t row = part % 2 * 8;
      Widen(tile.a[part][t], tile.element, &wide.a[k][row], &wide.a[k + 1][row]);
    }
    for (uint32_t part = 0; part < 2; ++part) {
      const uint32_t k = 2 * t + part * 8;
      Widen(tile.b[part][t], tile.element, wide.b[k], wide.b[k + 1]);
    }
  }
  for (uint32_t column = 0; column < 8; ++column) {
    if ((idle >> column & 1u) == 0) MultiplyColumn(tile, wide, column);
  }
}

}  // namespace quire::kernels::cuda::emulate
