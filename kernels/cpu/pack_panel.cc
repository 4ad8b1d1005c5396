#include "kernels/cpu/pack_panel.h"

#include <emmintrin.h>

#include <cstring>

#include "kernels/cpu/formats.h"
#include "kernels/grouped_blocks.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int kQuads = kLanes / 4;  // of rows
constexpr int64_t kVector = 4 * kLanes;

__m128i Load(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
void Store(std::byte* at, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), value);
}

// Four rows of four words, as four vectors of a word of each.
struct Square {
  __m128i rows[4];

  void Turn() {
    const __m128i a = _mm_unpacklo_epi32(rows[0], rows[1]);
    const __m128i b = _mm_unpacklo_epi32(rows[2], rows[3]);
    const __m128i c = _mm_unpackhi_epi32(rows[0], rows[1]);
    const __m128i d = _mm_unpackhi_epi32(rows[2], rows[3]);
    rows[0] = _mm_unpacklo_epi64(a, b);
    rows[1] = _mm_unpackhi_epi64(a, b);
    rows[2] = _mm_unpacklo_epi64(c, d);
    rows[3] = _mm_unpackhi_epi64(c, d);
  }
  static Square Read(const std::byte* from, int64_t stride) {
    return {{Load(from), Load(from + stride), Load(from + 2 * stride), Load(from + 3 * stride)}};
  }
  // To the lanes from `to` on of four vectors.
  void Put(std::byte* to) const {
    for (int i = 0; i < 4; ++i) Store(to + i * kVector, rows[i]);
  }
};

// `words` words of four bytes, a multiple of four, from each row at `from` to a vector each.
void PutWords(const std::byte* from, int64_t stride, int64_t words, std::byte* to) {
  for (int64_t word = 0; word < words; word += 4) {
    for (int quad = 0; quad < kQuads; ++quad) {
      Square square = Square::Read(from + 4 * quad * stride + 4 * word, stride);
      square.Turn();
      square.Put(to + word * kVector + 16 * quad);
    }
  }
}

__m128i LowNibbles(__m128i bytes) { return _mm_and_si128(bytes, _mm_set1_epi8(15)); }
__m128i HighNibbles(__m128i bytes) { return LowNibbles(_mm_srli_epi16(bytes, 4)); }

// From the first and the last sixteen of 32 values, a byte each, to the four words of PutNibbles
// (pack.cc).
__m128i NibbleWords(__m128i first, __m128i last) {
  // The second word of each eight bytes goes into the high nibbles of the first.
  const auto join = [](__m128i q) { return _mm_or_si128(q, _mm_srli_epi64(q, 28)); };
  return _mm_castps_si128(
      _mm_shuffle_ps(_mm_castsi128_ps(join(first)), _mm_castsi128_ps(join(last)), 0x88));
}

// Value j is in the low nibble of byte j, value 16 + j in its high one.
void PutNibbles(const std::byte* from, int64_t stride, std::byte* to) {
  for (int quad = 0; quad < kQuads; ++quad) {
    Square square = Square::Read(from + 4 * quad * stride, stride);
    for (__m128i& row : square.rows) row = NibbleWords(LowNibbles(row), HighNibbles(row));
    square.Turn();
    square.Put(to + 16 * quad);
  }
}

template <DType kType>
void PackGrouped(const std::byte* rows, int64_t stride, int64_t k, std::byte* panel) {
  constexpr int kRuns = SuperBlocks(kType);
  constexpr int kHead = grouped::HeadBytes(kType);
  for (int64_t block = 0; block < k / BlockElements(kType); ++block) {
    const std::byte* from = rows + block * BlockBytes(kType);
    std::byte* const head = panel + (SuperBytes(kType) > 0 ? SuperOffset(kType, kRuns * block)
                                                           : BlockOffset(kType, block));
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::byte* const own = from + lane * stride;
      std::memcpy(head + 4 * lane, own, 4);
      if (kType == DType::kF4_16) std::memcpy(head + kVector + 4 * lane, own + 4, 4);
      if (grouped::HasZero(kType)) head[kVector + lane] = own[4];
    }
    for (int run = 0; run < kRuns; ++run) {
      std::byte* const to = panel + BlockOffset(kType, block * kRuns + run) + ScaleBytes(kType);
      const std::byte* const codes = from + kHead + run * grouped::RunBytes(kType);
      if (grouped::HasNibbles(kType)) {
        PutNibbles(codes, stride, to);
      } else {
        PutWords(codes, stride, 8, to);
      }
    }
  }
}

// Two blocks of 32 values of four rows: those in the low nibbles of 32 bytes, those in the high
// ones.
void PutTwoBlocks(const Square& first, const Square& last, std::byte* low, std::byte* high) {
  Square even, odd;
  for (int row = 0; row < 4; ++row) {
    even.rows[row] = NibbleWords(LowNibbles(first.rows[row]), LowNibbles(last.rows[row]));
    odd.rows[row] = NibbleWords(HighNibbles(first.rows[row]), HighNibbles(last.rows[row]));
  }
  even.Turn();
  odd.Turn();
  even.Put(low);
  odd.Put(high);
}

// words: four bytes of each lane. Byte i of all lanes goes to to(i).
template <class Place>
void PutBytesOfLanes(const __m128i (&words)[kQuads], Place&& to) {
  const __m128i mask = _mm_set1_epi32(255);
  for (int i = 0; i < 4; ++i) {
    __m128i bytes[kQuads];
    for (int quad = 0; quad < kQuads; ++quad) {
      bytes[quad] = _mm_and_si128(_mm_srli_epi32(words[quad], 8 * i), mask);
    }
    Store(to(i), _mm_packus_epi16(_mm_packs_epi32(bytes[0], bytes[1]),
                                  _mm_packs_epi32(bytes[2], bytes[3])));
  }
}

// Scales and minima of six bits: of groups 0 … 3 in eight bytes, whose upper bits and four more
// bytes hold those of groups 4 … 7.
void PackScalesOfQ4K(const std::byte* from, int64_t stride, std::byte* first_block) {
  constexpr int kBlockBytes = PackedBlockBytes(DType::kQ4_K);
  const __m128i six = _mm_set1_epi8(0x3f), four = _mm_set1_epi8(0x0f), upper = _mm_set1_epi8(0x30);
  __m128i scales[2][kQuads], minima[2][kQuads];
  for (int quad = 0; quad < kQuads; ++quad) {
    Square square = Square::Read(from + 4 * quad * stride, stride);
    square.Turn();
    const auto [a, b, rest, unused] = square.rows;
    scales[0][quad] = _mm_and_si128(a, six);
    minima[0][quad] = _mm_and_si128(b, six);
    scales[1][quad] =
        _mm_or_si128(_mm_and_si128(rest, four), _mm_and_si128(_mm_srli_epi32(a, 2), upper));
    minima[1][quad] = _mm_or_si128(_mm_and_si128(_mm_srli_epi32(rest, 4), four),
                                   _mm_and_si128(_mm_srli_epi32(b, 2), upper));
  }
  for (int half = 0; half < 2; ++half) {
    std::byte* const to = first_block + 4 * half * kBlockBytes;
    PutBytesOfLanes(scales[half], [&](int i) { return to + i * kBlockBytes; });
    PutBytesOfLanes(minima[half], [&](int i) { return to + i * kBlockBytes + kLanes; });
  }
}

void PackQ4K(const std::byte* rows, int64_t stride, int64_t k, std::byte* panel) {
  constexpr DType kType = DType::kQ4_K;
  constexpr int kScalesAt = 4, kValuesAt = 16;
  for (int64_t super = 0; super < k / BlockElements(kType); ++super) {
    const std::byte* const from = rows + super * BlockBytes(kType);
    std::byte* const scales = panel + SuperOffset(kType, 8 * super);
    for (int lane = 0; lane < kLanes; ++lane) {
      std::memcpy(scales + 2 * lane, from + lane * stride, 2);
      std::memcpy(scales + 2 * kLanes + 2 * lane, from + lane * stride + 2, 2);
    }
    PackScalesOfQ4K(from + kScalesAt, stride, panel + BlockOffset(kType, 8 * super));
    for (int pair = 0; pair < 4; ++pair) {
      std::byte* const low = panel + BlockOffset(kType, 8 * super + 2 * pair) + ScaleBytes(kType);
      for (int quad = 0; quad < kQuads; ++quad) {
        const std::byte* const at = from + 4 * quad * stride + kValuesAt + 32 * pair;
        PutTwoBlocks(Square::Read(at, stride), Square::Read(at + 16, stride), low + 16 * quad,
                     low + PackedBlockBytes(kType) + 16 * quad);
      }
    }
  }
}

// The two bits at `shift` of sixteen values of four rows, as PutPairs (pack.cc) has them.
__m128i PairWords(Square square, int shift) {
  for (__m128i& row : square.rows) {
    const __m128i bits =
        _mm_and_si128(_mm_srl_epi16(row, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(3));
    row = _mm_or_si128(bits, _mm_srli_epi64(bits, 30));
  }
  square.Turn();
  return _mm_or_si128(square.rows[0], _mm_slli_epi32(square.rows[2], 4));
}

// Four blocks of 32 values, from 64 bytes of nibbles and 32 of upper bits.
void PackHalfOfQ6K(const std::byte* nibbles, const std::byte* upper, int64_t stride,
                   std::byte* first_block) {
  constexpr int kBlockBytes = PackedBlockBytes(DType::kQ6_K);
  for (int quad = 0; quad < kQuads; ++quad) {
    std::byte* const to = first_block + ScaleBytes(DType::kQ6_K) + 16 * quad;
    for (int i = 0; i < 2; ++i) {
      const std::byte* const at = nibbles + 4 * quad * stride + 32 * i;
      PutTwoBlocks(Square::Read(at, stride), Square::Read(at + 16, stride), to + i * kBlockBytes,
                   to + (2 + i) * kBlockBytes);
    }
    for (int half = 0; half < 2; ++half) {
      const Square bits = Square::Read(upper + 4 * quad * stride + 16 * half, stride);
      for (int block = 0; block < 4; ++block) {
        Store(to + block * kBlockBytes + (4 + half) * kVector, PairWords(bits, 2 * block));
      }
    }
  }
}

void PackQ6K(const std::byte* rows, int64_t stride, int64_t k, std::byte* panel) {
  constexpr DType kType = DType::kQ6_K;
  constexpr int kUpperAt = 128, kScalesAt = 192, kSuperAt = 208;
  for (int64_t super = 0; super < k / BlockElements(kType); ++super) {
    const std::byte* const from = rows + super * BlockBytes(kType);
    std::byte* const scales = panel + SuperOffset(kType, 8 * super);
    for (int lane = 0; lane < kLanes; ++lane) {
      std::memcpy(scales + 2 * lane, from + lane * stride + kSuperAt, 2);
    }
    std::byte* const first = panel + BlockOffset(kType, 8 * super);
    for (int half = 0; half < 2; ++half) {
      PackHalfOfQ6K(from + 64 * half, from + kUpperAt + 32 * half, stride,
                    first + 4 * half * PackedBlockBytes(kType));
    }
    __m128i words[4][kQuads];
    for (int quad = 0; quad < kQuads; ++quad) {
      Square square = Square::Read(from + 4 * quad * stride + kScalesAt, stride);
      square.Turn();
      for (int i = 0; i < 4; ++i) words[i][quad] = square.rows[i];
    }
    for (int i = 0; i < 4; ++i) {  // a scale for each half of a block
      PutBytesOfLanes(words[i], [&](int byte) {
        return first + (4 * i + byte) / 2 * PackedBlockBytes(kType) + (byte % 2) * kLanes;
      });
    }
  }
}

void PackQ8(const std::byte* rows, int64_t stride, int64_t k, std::byte* panel) {
  for (int64_t block = 0; block < k / BlockElements(DType::kQ8_0); ++block) {
    const std::byte* from = rows + block * BlockBytes(DType::kQ8_0);
    std::byte* const to = panel + BlockOffset(DType::kQ8_0, block);
    for (int lane = 0; lane < kLanes; ++lane) {
      std::memcpy(to + 2 * lane, from + lane * stride, 2);
    }
    PutWords(from + 2, stride, 8, to + ScaleBytes(DType::kQ8_0));
  }
}

// Words hold two k: their halves go to a vector of 32 bytes each.
void PackHalves(const std::byte* rows, int64_t stride, int64_t k, std::byte* panel) {
  const auto low = [](__m128i words) { return _mm_srai_epi32(_mm_slli_epi32(words, 16), 16); };
  const auto high = [](__m128i words) { return _mm_srai_epi32(words, 16); };
  for (int64_t i = 0; i < k; i += 8) {
    for (int quad = 0; quad < kQuads; quad += 2) {
      Square first = Square::Read(rows + 4 * quad * stride + 2 * i, stride);
      Square second = Square::Read(rows + 4 * (quad + 1) * stride + 2 * i, stride);
      first.Turn();
      second.Turn();
      for (int word = 0; word < 4; ++word) {
        const __m128i a = first.rows[word];
        const __m128i b = second.rows[word];
        std::byte* const to = panel + (i + 2 * word) * (kVector / 2) + 8 * quad;
        Store(to, _mm_packs_epi32(low(a), low(b)));
        Store(to + kVector / 2, _mm_packs_epi32(high(a), high(b)));
      }
    }
  }
}

bool PackFloats(DType type, const std::byte* rows, int64_t stride, int64_t k, std::byte* panel) {
  const int64_t words = k * BlockBytes(type) / 4;
  if (k * BlockBytes(type) % 16 != 0) return false;
  if (type == DType::kF16) {
    PackHalves(rows, stride, k, panel);
  } else {
    PutWords(rows, stride, words, panel);
  }
  return true;
}

}  // namespace

bool PackWholePanel(DType type, const std::byte* rows, int64_t stride, int64_t k,
                    std::byte* panel) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return PackFloats(type, rows, stride, k, panel);
    case DType::kQ8_0:
      PackQ8(rows, stride, k, panel);
      return true;
    case DType::kQ4_K:
      PackQ4K(rows, stride, k, panel);
      return true;
    case DType::kQ6_K:
      PackQ6K(rows, stride, k, panel);
      return true;
#define QUIRE_GROUPED(name)                           \
  case DType::name:                                   \
    PackGrouped<DType::name>(rows, stride, k, panel); \
    return true
      QUIRE_GROUPED(kG4);
      QUIRE_GROUPED(kG4_128);
      QUIRE_GROUPED(kG8);
      QUIRE_GROUPED(kF8);
      QUIRE_GROUPED(kF4_16);
      QUIRE_GROUPED(kNF4);
      QUIRE_GROUPED(kFP4);
#undef QUIRE_GROUPED
    default:
      return false;
  }
}

}  // namespace quire::kernels::cpu
