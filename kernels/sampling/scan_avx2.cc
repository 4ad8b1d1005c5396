// Compiled for AVX2 and fma, which every served host has; arithmetic.h defines the arithmetic.
#include "kernels/sampling/scan.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace quire::kernels::sampling {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kPiece = 256;
constexpr uint64_t kMassOffset = 0x4330000000000000ull;  // the bits of 2^52

float MaxOfLanes(const float* lanes) { return *std::max_element(lanes, lanes + kLanes); }

__m256 Distances(const float* z, __m256 peak, __m256 temperature) {
  return _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(z), peak), temperature);
}

// ExpOfNegative, step by step.
__m256 ExpOfNegative8(__m256 x) {
  const __m256 low = _mm256_set1_ps(-87.3365478515625f);
  const __m256 magic = _mm256_set1_ps(12582912.0f);
  const __m256 clamped = _mm256_max_ps(low, x);
  const __m256 shifted = _mm256_fmadd_ps(clamped, _mm256_set1_ps(1.44269504088896341f), magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), clamped);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
                                         _mm256_set1_epi32(0x3f800000));
  const __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), y);
}

// Mass plus kMassOffset, of four weights.
__m256i OffsetMasses(__m128 weights) {
  const __m256d shifted = _mm256_fmadd_pd(_mm256_cvtps_pd(weights), _mm256_set1_pd(kMassUnit),
                                          _mm256_set1_pd(4503599627370496.0));
  return _mm256_castpd_si256(shifted);
}

uint64_t SumOfLanes(__m256i v) {
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

// Eight logits, −∞ where their bit is not set. `allowed`: bits 0 to 7.
__m256 Allowed8(const float* z, uint32_t allowed) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i own = _mm256_set1_epi32(static_cast<int>(allowed));
  const __m256i keep = _mm256_cmpeq_epi32(_mm256_and_si256(own, bits), bits);
  const __m256 gone = _mm256_set1_ps(kImpossible);
  return _mm256_blendv_ps(gone, _mm256_loadu_ps(z), _mm256_castsi256_ps(keep));
}

void ForbidIn32(float* z, uint32_t allowed) {
  for (int part = 0; part < 4; ++part) {
    float* at = z + part * kLanes;
    _mm256_storeu_ps(at, Allowed8(at, (allowed >> (8 * part)) & 0xffu));
  }
}

uint32_t WordOf(std::span<const uint32_t> mask, size_t index) {
  return index < mask.size() ? mask[index] : 0u;
}

bool IsAllowed(std::span<const uint32_t> mask, size_t id) {
  return (WordOf(mask, id / 32) >> (id % 32) & 1u) != 0;
}

// The first random word of eight consecutive tokens. Each half holds four of them in the low 32
// bits of its 64-bit lanes, what stands above is noise: that is all that the products look at.
struct NoiseWords {
  __m256i even;
  __m256i odd;
};

class PhiloxLanes {
 public:
  explicit PhiloxLanes(const NoisePosition& at) {
    const uint32_t high = static_cast<uint32_t>(at.output_index >> 32);
    index_ = Repeat(static_cast<uint32_t>(at.output_index));
    choice_ = Repeat(at.choice);
    purpose_ = Repeat(static_cast<uint32_t>(at.purpose) ^ (high << 8));
    uint32_t key0 = static_cast<uint32_t>(at.seed);
    uint32_t key1 = static_cast<uint32_t>(at.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      keys0_[round] = Repeat(key0);
      keys1_[round] = Repeat(key1);
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
  }

  // Tokens first, first + 2, … in one half, first + 1, first + 3, … in the other.
  NoiseWords Words(uint32_t first) const {
    const __m256i even =
        _mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 2, 4, 6));
    return {Rounds(even), Rounds(_mm256_add_epi64(even, _mm256_set1_epi64x(1)))};
  }

 private:
  static __m256i Repeat(uint32_t value) { return _mm256_set1_epi64x(value); }

  __m256i Rounds(__m256i token) const {
    __m256i c0 = token;
    __m256i c1 = index_;
    __m256i c2 = choice_;
    __m256i c3 = purpose_;
    const __m256i m0 = Repeat(0xD2511F53u);
    const __m256i m1 = Repeat(0xCD9E8D57u);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const __m256i a = _mm256_mul_epu32(c0, m0);
      const __m256i b = _mm256_mul_epu32(c2, m1);
      c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(b, 32), c1), keys0_[round]);
      c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(a, 32), c3), keys1_[round]);
      c1 = b;
      c3 = a;
    }
    return c0;
  }

  __m256i index_, choice_, purpose_;
  __m256i keys0_[10], keys1_[10];
};

// No score of a token is above this bound unless it is kept. Let u be its random number, and c the
// 24 bits below which 1 − u cannot be. Its noise is −ln(−ln u) ≤ −ln(1 − u) ≤ −ln(c / 2^24). So it
// cannot reach the best score if e^distance · 2^24 · e^−best < c. The scale leaves room for the
// rounding of both exponentials.
float ReachScale(const Best& best) {
  return static_cast<float>(16777216.0 * 1.00001 * std::exp(-best.score));
}

}  // namespace

void RowPeaks::Reserve(int64_t vocab_size) {
  const size_t floats = static_cast<size_t>(vocab_size / kPiece * kLanes);
  lanes_.reserve(floats);
  scratch_.reserve(floats);
}

int64_t RowPeaks::ReservedBytes(int64_t vocab_size) {
  return 2 * (vocab_size / kPiece * kLanes) * int64_t{sizeof(float)};
}

Peak RowPeaks::Find(std::span<const float> z) {
  const int64_t count = static_cast<int64_t>(z.size());
  const int64_t pieces = count / kPiece;
  lanes_.resize(static_cast<size_t>(pieces) * kLanes);
  __m256 bad = _mm256_setzero_ps();
  __m256 largest = _mm256_set1_ps(kImpossible);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const float* at = z.data() + piece * kPiece;
    __m256 m0 = _mm256_set1_ps(kImpossible);
    __m256 m1 = m0;
    for (int64_t i = 0; i < kPiece; i += 4 * kLanes) {
      const __m256 a = _mm256_loadu_ps(at + i);
      const __m256 b = _mm256_loadu_ps(at + i + kLanes);
      const __m256 c = _mm256_loadu_ps(at + i + 2 * kLanes);
      const __m256 d = _mm256_loadu_ps(at + i + 3 * kLanes);
      m0 = _mm256_max_ps(_mm256_max_ps(a, b), m0);
      m1 = _mm256_max_ps(_mm256_max_ps(c, d), m1);
      bad = _mm256_or_ps(bad, _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
      bad = _mm256_or_ps(bad, _mm256_cmp_ps(c, d, _CMP_UNORD_Q));
    }
    m0 = _mm256_max_ps(m0, m1);
    _mm256_storeu_ps(lanes_.data() + piece * kLanes, m0);
    largest = _mm256_max_ps(largest, m0);
  }
  alignas(32) float lanes[kLanes];
  _mm256_store_ps(lanes, largest);
  Peak peak;
  float best = MaxOfLanes(lanes);
  bool numbers = _mm256_movemask_ps(bad) == 0;
  for (int64_t i = pieces * kPiece; i < count; ++i) {
    numbers = numbers && z[i] == z[i];
    best = z[i] > best ? z[i] : best;
  }
  if (!numbers || best == std::numeric_limits<float>::infinity()) return peak;
  peak.usable = true;
  if (best == kImpossible) return peak;
  int64_t piece = 0;
  while (piece < pieces && MaxOfLanes(lanes_.data() + piece * kLanes) != best) ++piece;
  for (int64_t i = piece * kPiece; i < count && peak.id < 0; ++i) {
    if (z[i] == best) peak.id = static_cast<int32_t>(i);
  }
  peak.value = z[peak.id];
  return peak;
}

Peak RowPeaks::FindAllowed(std::span<const float> z, std::span<const uint32_t> mask) {
  constexpr size_t kWords = kPiece / 32;
  const size_t count = z.size();
  const size_t pieces = count / kPiece;
  lanes_.resize(pieces * kLanes);
  __m256 largest = _mm256_set1_ps(kImpossible);
  for (size_t piece = 0; piece < pieces; ++piece) {
    __m256 own = _mm256_set1_ps(kImpossible);
    for (size_t word = piece * kWords; word < (piece + 1) * kWords; ++word) {
      const uint32_t allowed = WordOf(mask, word);
      if (allowed == 0) continue;
      const float* at = z.data() + word * 32;
      for (int part = 0; part < 4; ++part, at += kLanes) {
        own = _mm256_max_ps(own, Allowed8(at, (allowed >> (8 * part)) & 0xffu));
      }
    }
    _mm256_storeu_ps(lanes_.data() + piece * kLanes, own);
    largest = _mm256_max_ps(largest, own);
  }
  alignas(32) float lanes[kLanes];
  _mm256_store_ps(lanes, largest);
  Peak peak{.usable = true};
  float best = MaxOfLanes(lanes);
  for (size_t i = pieces * kPiece; i < count; ++i) {
    if (IsAllowed(mask, i)) best = std::max(best, z[i]);
  }
  if (best == kImpossible) return peak;
  size_t piece = 0;
  while (piece < pieces && MaxOfLanes(lanes_.data() + piece * kLanes) != best) ++piece;
  for (size_t i = piece * kPiece; i < count && peak.id < 0; ++i) {
    if (z[i] == best && IsAllowed(mask, i)) peak.id = static_cast<int32_t>(i);
  }
  peak.value = z[static_cast<size_t>(peak.id)];
  return peak;
}

float RowPeaks::LowerBound(int64_t count) {
  const int64_t pieces = static_cast<int64_t>(lanes_.size()) / kLanes;
  if (count < 1 || count > static_cast<int64_t>(lanes_.size())) return kImpossible;
  // Few are found among whole pieces, which are less work to look through.
  if (count <= pieces / 2) {
    scratch_.resize(static_cast<size_t>(pieces));
    for (int64_t i = 0; i < pieces; ++i) scratch_[i] = MaxOfLanes(lanes_.data() + i * kLanes);
  } else {
    scratch_ = lanes_;
  }
  const auto at = scratch_.begin() + (count - 1);
  std::nth_element(scratch_.begin(), at, scratch_.end(), std::greater<float>());
  return *at;
}

uint64_t SumMasses(std::span<const float> z, float peak, float temperature) {
  const __m256 peaks = _mm256_set1_ps(peak);
  const __m256 temperatures = _mm256_set1_ps(temperature);
  __m256i sum0 = _mm256_setzero_si256();
  __m256i sum1 = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= z.size(); i += kLanes) {
    const __m256 weights = ExpOfNegative8(Distances(z.data() + i, peaks, temperatures));
    sum0 = _mm256_add_epi64(sum0, OffsetMasses(_mm256_castps256_ps128(weights)));
    sum1 = _mm256_add_epi64(sum1, OffsetMasses(_mm256_extractf128_ps(weights, 1)));
  }
  // Offsets wrap around and come out again.
  uint64_t sum = SumOfLanes(_mm256_add_epi64(sum0, sum1)) - kMassOffset * i;
  for (; i < z.size(); ++i) sum += Mass(ExpOfNegative(DistanceOf(z[i], peak, temperature)));
  return sum;
}

uint64_t SumWeightedMasses(std::span<const float> z, float peak, float temperature) {
  const __m256 peaks = _mm256_set1_ps(peak);
  const __m256 temperatures = _mm256_set1_ps(temperature);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256i sum0 = _mm256_setzero_si256();
  __m256i sum1 = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= z.size(); i += kLanes) {
    const __m256 distances = Distances(z.data() + i, peaks, temperatures);
    const __m256 weights = ExpOfNegative8(distances);
    const __m256 products = _mm256_mul_ps(_mm256_xor_ps(distances, sign), weights);
    // Without a weight there is nothing, also where the distance is −∞.
    const __m256 some = _mm256_cmp_ps(weights, _mm256_setzero_ps(), _CMP_GT_OQ);
    const __m256 weighted = _mm256_and_ps(products, some);
    sum0 = _mm256_add_epi64(sum0, OffsetMasses(_mm256_castps256_ps128(weighted)));
    sum1 = _mm256_add_epi64(sum1, OffsetMasses(_mm256_extractf128_ps(weighted, 1)));
  }
  uint64_t sum = SumOfLanes(_mm256_add_epi64(sum0, sum1)) - kMassOffset * i;
  for (; i < z.size(); ++i) {
    const float distance = DistanceOf(z[i], peak, temperature);
    const float weight = ExpOfNegative(distance);
    if (weight > 0.0f) sum += Mass(-distance * weight);
  }
  return sum;
}

void GatherAtLeast(std::span<const float> z, float least, std::vector<int32_t>& ids,
                   std::vector<float>& values) {
  const float bound = std::max(least, std::numeric_limits<float>::lowest());
  const __m256 bounds = _mm256_set1_ps(bound);
  const auto append = [&](size_t i) {
    ids.push_back(static_cast<int32_t>(i));
    values.push_back(z[i]);
  };
  size_t i = 0;
  for (; i + kLanes <= z.size(); i += kLanes) {
    const __m256 eight = _mm256_loadu_ps(z.data() + i);
    unsigned found =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(eight, bounds, _CMP_GE_OQ)));
    for (; found != 0; found &= found - 1) {
      append(i + static_cast<size_t>(__builtin_ctz(found)));
    }
  }
  for (; i < z.size(); ++i) {
    if (z[i] >= bound) append(i);
  }
}

int32_t CountBefore(std::span<const float> z, float own, int64_t where) {
  const __m256 owns = _mm256_set1_ps(own);
  const auto count = [](__m256 found) {
    return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(found)));
  };
  const size_t place =
      static_cast<size_t>(std::clamp<int64_t>(where, 0, static_cast<int64_t>(z.size())));
  int32_t before = 0;
  size_t i = 0;
  for (; i + kLanes <= z.size(); i += kLanes) {
    const __m256 eight = _mm256_loadu_ps(z.data() + i);
    // Equal ones count only before the token's own eight.
    before += count(i + kLanes <= place ? _mm256_cmp_ps(eight, owns, _CMP_GE_OQ)
                                        : _mm256_cmp_ps(eight, owns, _CMP_GT_OQ));
  }
  for (size_t k = i; k < z.size(); ++k) before += z[k] > own ? 1 : 0;
  for (size_t k = place / kLanes * kLanes; k < place; ++k) before += z[k] == own ? 1 : 0;
  return before;
}

void ForbidOutsideMask(std::span<float> z, int32_t first, std::span<const uint32_t> mask) {
  // The bits of 32 ids from any one on are in two words.
  const auto bits = [mask](size_t id) {
    const uint64_t two = WordOf(mask, id / 32) | uint64_t{WordOf(mask, id / 32 + 1)} << 32;
    return static_cast<uint32_t>(two >> (id % 32));
  };
  for (size_t begin = 0; begin < z.size(); begin += 32) {
    const uint32_t allowed = bits(static_cast<size_t>(first) + begin);
    if (allowed == 0xffffffffu) continue;
    if (begin + 32 <= z.size()) {
      ForbidIn32(z.data() + begin, allowed);
      continue;
    }
    for (size_t i = begin; i < z.size(); ++i) {
      z[i] = ((allowed >> (i - begin)) & 1u) != 0 ? z[i] : kImpossible;
    }
  }
}

namespace {

// The draw among tokens of a row, eight at a time.
class RowDraw {
 public:
  RowDraw(std::span<const float> z, int32_t first, const Peak& peak, float temperature,
          const NoisePosition& at)
      : z_(z), first_(first), peak_(peak.value), temperature_(temperature), at_(at), philox_(at) {
    Consider(at_, 0.0f, peak.id, best_);
    scale_ = _mm256_set1_ps(ReachScale(best_));
  }

  void Take(size_t i) {
    const float distance = DistanceOf(z_[i], peak_, temperature_);
    if (distance == kImpossible) return;
    const int32_t before = best_.id;
    Consider(at_, distance, first_ + static_cast<int32_t>(i), best_);
    if (best_.id != before) scale_ = _mm256_set1_ps(ReachScale(best_));
  }

  // Those of the eight from `i` on whose bit is set.
  void Take8(size_t i, unsigned allowed) {
    const __m256 weights = ExpOfNegative8(
        Distances(z_.data() + i, _mm256_set1_ps(peak_), _mm256_set1_ps(temperature_)));
    // Out of reach of every noise: below −87.3 a weight is 0.
    if (_mm256_testz_si256(_mm256_castps_si256(weights), _mm256_castps_si256(weights))) return;
    const NoiseWords words =
        philox_.Words(static_cast<uint32_t>(first_) + static_cast<uint32_t>(i));
    // Tokens in order again, then the upper 24 bits of what is missing to 2^32 − 1.
    const __m256i word =
        _mm256_blend_epi32(words.even, _mm256_slli_epi64(words.odd, 32), 0b10101010);
    const __m256i missing = _mm256_srli_epi32(_mm256_xor_si256(word, _mm256_set1_epi32(-1)), 8);
    const __m256 bound = _mm256_cvtepi32_ps(missing);
    unsigned kept = allowed & static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(
                                  _mm256_mul_ps(weights, scale_), bound, _CMP_GE_OQ)));
    for (; kept != 0; kept &= kept - 1) Take(i + static_cast<size_t>(__builtin_ctz(kept)));
  }

  const Best& best() const { return best_; }

 private:
  const std::span<const float> z_;
  const int32_t first_;
  const float peak_, temperature_;
  const NoisePosition at_;
  const PhiloxLanes philox_;
  Best best_;
  __m256 scale_;
};

}  // namespace

Best DrawAmongAll(std::span<const float> z, int32_t first, const Peak& peak, float temperature,
                  const NoisePosition& at) {
  RowDraw draw(z, first, peak, temperature, at);
  size_t i = 0;
  for (; i + kLanes <= z.size(); i += kLanes) draw.Take8(i, 0xffu);
  for (; i < z.size(); ++i) draw.Take(i);
  return draw.best();
}

Best DrawAmongAllowed(std::span<const float> z, std::span<const uint32_t> mask, const Peak& peak,
                      float temperature, const NoisePosition& at) {
  RowDraw draw(z, 0, peak, temperature, at);
  for (size_t begin = 0; begin < z.size(); begin += 32) {
    const uint32_t allowed = WordOf(mask, begin / 32);
    if (allowed == 0) continue;
    size_t i = begin;
    const size_t end = std::min(begin + 32, z.size());
    for (; i + kLanes <= end; i += kLanes) draw.Take8(i, (allowed >> (i - begin)) & 0xffu);
    for (; i < end; ++i) {
      if (IsAllowed(mask, i)) draw.Take(i);
    }
  }
  return draw.best();
}

}  // namespace quire::kernels::sampling
