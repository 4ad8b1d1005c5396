// Compiled for AVX2 and fma, which every served host has.
#include "kernels/cpu/head_screen.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {
namespace {

constexpr int64_t kLeastRows = 8192;     // below, a head is a small part of its model
constexpr int64_t kPiece = 1024;         // logits that share one maximum
constexpr int kShareOfUnits = 32;        // more than one in so many would cost too much,
constexpr int kFewUnits = 32;            // unless there are so few
constexpr double kRoundedUp = 1.000001;  // covers the rounding of norms and bounds themselves
// What products near the smallest floats lose beyond their share.
constexpr double kLeastBound = 1e-35;

// The share of |w| |x| that the sums of both products round, with a factor of four to spare: each
// adds up fewer than 144 + K / 32 roundings of 2^-24.
double RoundingShare(int64_t k) {
  return 8.0 * static_cast<double>(144 + k / 32) / static_cast<double>(1 << 24);
}

struct Block {
  __m256 values[4];
};

Block ReadBlock(DType type, const std::byte* from) {
  Block block;
  for (int i = 0; i < 4; ++i) {
    if (type == DType::kF32) {
      block.values[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from) + 8 * i);
      continue;
    }
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    block.values[i] =
        type == DType::kF16
            ? _mm256_cvtph_ps(halves)
            : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  return block;
}

// Of magnitudes as integers, which puts whatever is not finite above all that is.
float LargestOf(const Block& block) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (const __m256& value : block.values) {
    most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(value), magnitude));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return std::bit_cast<float>(_mm_cvtsi128_si32(four));
}

// Sums of squares of values and of what their codes lose.
class Squares {
 public:
  // Codes of a block are value · inverse, to the nearest even; they mean code · scale.
  void Add(const Block& block, float inverse, float scale, int8_t* codes) {
    for (int i = 0; i < 4; ++i) {
      const __m256 value = block.values[i];
      const __m256i nearest = _mm256_cvtps_epi32(_mm256_mul_ps(value, _mm256_set1_ps(inverse)));
      const __m256i code = _mm256_max_epi32(_mm256_min_epi32(nearest, _mm256_set1_epi32(127)),
                                            _mm256_set1_epi32(-127));
      const __m256 lost = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(scale), value);
      values_ = AddSquares(values_, value);
      errors_ = AddSquares(errors_, lost);
      if (codes == nullptr) continue;
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + 8 * i), _mm_packs_epi16(words, words));
    }
  }
  double ValueNorm() const { return NormOf(values_); }
  double ErrorNorm() const { return NormOf(errors_); }

 private:
  static __m256d AddSquares(__m256d sum, __m256 values) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(values));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1));
    return _mm256_fmadd_pd(high, high, _mm256_fmadd_pd(low, low, sum));
  }
  static double NormOf(__m256d sums) {
    double lanes[4];
    _mm256_storeu_pd(lanes, sums);
    return std::sqrt(lanes[0] + lanes[1] + lanes[2] + lanes[3]) * kRoundedUp;
  }

  __m256d values_ = _mm256_setzero_pd();
  __m256d errors_ = _mm256_setzero_pd();
};

Weight CopyOf(const Weight& head) {
  Weight copy;
  copy.rows = head.rows;
  copy.cols = head.cols;
  copy.parts.push_back({DType::kQ8_0, head.rows, head.cols, nullptr});
  return copy;
}

float RoundedUp(double value) {
  return std::nextafter(static_cast<float>(value), std::numeric_limits<float>::infinity());
}

// The largest of `count` values, and whether one is NaN.
float LargestOf(const float* values, int64_t count, bool& not_a_number) {
  float most = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  __m256 lanes = _mm256_set1_ps(most);
  __m256 unordered = _mm256_setzero_ps();
  for (; i + 8 <= count; i += 8) {
    const __m256 value = _mm256_loadu_ps(values + i);
    lanes = _mm256_max_ps(value, lanes);
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }
  not_a_number = not_a_number || _mm256_movemask_ps(unordered) != 0;
  float each[8];
  _mm256_storeu_ps(each, lanes);
  for (const float value : each) most = std::max(most, value);
  for (; i < count; ++i) {
    not_a_number = not_a_number || std::isnan(values[i]);
    most = std::max(most, values[i]);
  }
  return most;
}

}  // namespace

bool HeadScreen::Suits(const Weight& head) {
  if (head.parts.size() != 1 || head.rows < kLeastRows || head.cols % kBlock != 0) return false;
  const DType type = head.parts.front().type;
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

int64_t HeadScreen::Bytes(const Weight& head) {
  return PackedBytes(PlanMatrix(CopyOf(head), false)) + 8 * head.rows;
}

HeadScreen::HeadScreen(const Weight& head)
    : copy_(PlanMatrix(CopyOf(head), false)),
      weight_norms_(static_cast<size_t>(head.rows)),
      error_norms_(static_cast<size_t>(head.rows)) {
  AllocateMatrix(copy_);
}

int64_t HeadScreen::bytes() const {
  return copy_.memory.size() + 4 * static_cast<int64_t>(weight_norms_.size() + error_norms_.size());
}

void HeadScreen::Pack(DType type, const PanelRows& rows, int panel) {
  const Panel& to = copy_.panels[static_cast<size_t>(panel)];
  const int64_t blocks = copy_.k / kBlock;
  const int64_t block_bytes = kBlock * BlockBytes(type);
  const int64_t row_bytes = blocks * BlockBytes(DType::kQ8_0);
  std::vector<std::byte> codes(static_cast<size_t>(to.rows * row_bytes));
  for (int lane = 0; lane < to.rows; ++lane) {
    const std::byte* from = rows.first + lane * rows.stride;
    std::byte* const row = codes.data() + lane * row_bytes;
    Squares squares;
    for (int64_t i = 0; i < blocks; ++i) {
      const Block block = ReadBlock(type, from + i * block_bytes);
      std::byte* const out = row + i * BlockBytes(DType::kQ8_0);
      const uint16_t half = FloatToHalf(LargestOf(block) / 127.0f);
      const float scale = HalfToFloat(half);
      float inverse = 1.0f / scale;
      if (!(inverse <= std::numeric_limits<float>::max())) inverse = 0.0f;
      std::memcpy(out, &half, 2);
      squares.Add(block, inverse, scale, reinterpret_cast<int8_t*>(out + 2));
    }
    const size_t index = static_cast<size_t>(to.out_row + lane);
    weight_norms_[index] = RoundedUp(squares.ValueNorm());
    error_norms_[index] = RoundedUp(squares.ErrorNorm());
  }
  PackPanel(copy_, panel, {codes.data(), row_bytes});
}

bool HeadScreen::Finish() {
  bool finite = true;
  for (size_t i = 0; i < weight_norms_.size(); ++i) {
    finite = finite && std::isfinite(weight_norms_[i]) && std::isfinite(error_norms_[i]);
    most_weight_norm_ = std::max(most_weight_norm_, double{weight_norms_[i]});
    most_error_norm_ = std::max(most_error_norm_, double{error_norms_[i]});
  }
  if (!finite) *this = HeadScreen();
  return finite;
}

ScreenBound HeadScreen::BoundOf(const float* x) const {
  Squares squares;
  bool finite = true;
  for (int64_t i = 0; i < copy_.k; i += kBlock) {
    const Block block = ReadBlock(DType::kF32, reinterpret_cast<const std::byte*>(x + i));
    const float largest = LargestOf(block);
    finite = finite && std::isfinite(largest);
    const float inverse = 127.0f / largest;
    const bool zeros = !(inverse <= std::numeric_limits<float>::max());
    squares.Add(block, zeros ? 0.0f : inverse, zeros ? 0.0f : largest / 127.0f, nullptr);
  }
  if (!finite) return {std::numeric_limits<double>::infinity(), 0};
  const double norm = squares.ValueNorm();
  const double error = squares.ErrorNorm();
  return {error + RoundingShare(copy_.k) * norm, (norm + error) * (1 + RoundingShare(copy_.k))};
}

size_t HeadScreen::MostUnits() const {
  return static_cast<size_t>(std::max(kFewUnits, LinearUnits(copy_) / kShareOfUnits));
}

void HeadScreen::Reserve(ScreenScratch& scratch) const {
  scratch.largest.reserve(static_cast<size_t>((copy_.rows + kPiece - 1) / kPiece));
  scratch.units.reserve(2 * MostUnits());
}

int32_t HeadScreen::UnitOf(int64_t row) const {
  const int32_t panel = static_cast<int32_t>(row / kPanelRows);
  const int32_t units = LinearUnits(copy_);
  return panel < units ? panel : panel - units;
}

int64_t HeadScreen::BestOfUnit(const float* exact, int32_t unit, int64_t best) const {
  const int32_t units = LinearUnits(copy_);
  for (const int32_t panel : {unit, unit + units}) {
    if (panel >= copy_.PanelCount()) break;
    const Panel& rows = copy_.panels[static_cast<size_t>(panel)];
    for (int64_t row = rows.out_row; row < rows.out_row + rows.rows; ++row) {
      if (exact[row] > exact[best] || (exact[row] == exact[best] && row < best)) best = row;
    }
  }
  return best;
}

int64_t HeadScreen::FindLeader(const float* rough, ScreenScratch& scratch) const {
  std::vector<float>& largest = scratch.largest;
  largest.clear();
  bool not_a_number = false;
  size_t best = 0;
  for (int64_t begin = 0; begin < copy_.rows; begin += kPiece) {
    const int64_t count = std::min(kPiece, copy_.rows - begin);
    largest.push_back(LargestOf(rough + begin, count, not_a_number));
    if (largest.back() > largest[best]) best = largest.size() - 1;
  }
  if (not_a_number || !std::isfinite(largest[best])) return -1;
  return std::find(rough + static_cast<int64_t>(best) * kPiece, rough + copy_.rows, largest[best]) -
         rough;
}

bool HeadScreen::FindUnits(const float* rough, int64_t leader, const ScreenBound& bound,
                           ScreenScratch& scratch) const {
  const double most_error =
      (most_weight_norm_ * bound.of_weights + most_error_norm_ * bound.of_errors) * kRoundedUp +
      kLeastBound;
  std::vector<int32_t>& units = scratch.units;
  units.clear();
  // A logit that is certain to be below the leader's is not chosen.
  const double least = rough[leader];
  if (!std::isfinite(most_error) || !std::isfinite(least)) return false;
  const float least_rough = std::nextafter(static_cast<float>(least - most_error),
                                           -std::numeric_limits<float>::infinity());
  const int32_t leading_unit = UnitOf(leader);
  for (size_t piece = 0; piece < scratch.largest.size(); ++piece) {
    if (scratch.largest[piece] < least_rough) continue;
    const int64_t end = std::min(copy_.rows, static_cast<int64_t>(piece + 1) * kPiece);
    for (int64_t row = static_cast<int64_t>(piece) * kPiece; row < end; ++row) {
      if (rough[row] < least_rough) continue;
      const size_t i = static_cast<size_t>(row);
      const double error =
          (weight_norms_[i] * bound.of_weights + error_norms_[i] * bound.of_errors) * kRoundedUp +
          kLeastBound;
      if (rough[row] + error < least) continue;
      const int32_t unit = UnitOf(row);
      if (unit == leading_unit || (!units.empty() && units.back() == unit)) continue;
      if (units.size() == 2 * MostUnits()) return false;
      units.push_back(unit);
    }
  }
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units.size() <= MostUnits();
}

}  // namespace quire::kernels::cpu
