#include "tests/kernels/test_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/grouped_blocks.h"
#include "tests/kernels/grid_elements.h"

namespace quire::kernels::test {
namespace {

uint8_t Byte(const std::byte* p, int64_t i) { return static_cast<uint8_t>(p[i]); }
int8_t Signed(const std::byte* p, int64_t i) { return static_cast<int8_t>(p[i]); }
uint16_t Word(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

int Nibble(const std::byte* p, int j) { return j < 16 ? Byte(p, j) & 15 : Byte(p, j - 16) >> 4; }
int Bit(const std::byte* p, int j) { return (Byte(p, j / 8) >> (j % 8)) & 1; }

// Six-bit scale or minimum `j` of a K block's 12 bytes.
int SixBits(const std::byte* p, int j, bool minimum) {
  if (j < 4) return Byte(p, minimum ? j + 4 : j) & 63;
  const int low = minimum ? Byte(p, j + 4) >> 4 : Byte(p, j + 4) & 15;
  const int high = Byte(p, minimum ? j : j - 4) >> 6;
  return low | (high << 4);
}

double ElementOfK45(const std::byte* block, int j, bool five) {
  const double d = HalfValue(Word(block));
  const double dmin = HalfValue(Word(block + 2));
  const int sub = j / 32;
  const std::byte* nibbles = block + (five ? 48 : 16);
  const int byte = Byte(nibbles, sub / 2 * 32 + j % 32);
  int q = sub % 2 == 0 ? byte & 15 : byte >> 4;
  if (five) q += 16 * ((Byte(block + 16, j % 32) >> sub) & 1);
  return d * SixBits(block + 4, sub, false) * q - dmin * SixBits(block + 4, sub, true);
}

double ElementOfQ6(const std::byte* block, int j) {
  const int half = j / 128;
  const int within = j % 128;
  const int low_byte = Byte(block, half * 64 + within % 64);
  const int low = within < 64 ? low_byte & 15 : low_byte >> 4;
  const int high = (Byte(block + 128, half * 32 + within % 32) >> (within / 32 * 2)) & 3;
  const double d = HalfValue(Word(block + 208));
  return d * Signed(block + 192, j / 16) * ((low | (high << 4)) - 32);
}

double FloatOf(const std::byte* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

// Bias 7; exponent 0 is subnormal.
double E4m3Value(int code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128) != 0 ? -size : size;
}

// Pairs of bits: bits 2 j of 32 bytes for elements 32 j … of each half of 128.
int Pair(const std::byte* p, int j) {
  return Byte(p, j / 128 * 32 + j % 32) >> (j % 128 / 32 * 2) & 3;
}

double ElementOfQ2(const std::byte* block, int j) {
  const int both = Byte(block, j / 16);
  return HalfValue(Word(block + 80)) * (both & 15) * Pair(block + 16, j) -
         HalfValue(Word(block + 82)) * (both >> 4);
}

double ElementOfQ3(const std::byte* block, int j) {
  const int s = j / 16;
  const int low = s < 8 ? Byte(block + 96, s) & 15 : Byte(block + 96, s - 8) >> 4;
  const int high = Byte(block + 104, s % 4) >> (s / 4 * 2) & 3;
  const int third = Byte(block, j % 32) >> (j / 32) & 1;
  const int q = Pair(block + 32, j) - (third != 0 ? 0 : 4);
  return HalfValue(Word(block + 108)) * ((low | high << 4) - 32) * q;
}

double Iq4Value(int code) {
  constexpr int kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
  return kValues[code];
}

double ElementOfIq4Xs(const std::byte* block, int j) {
  const int sub = j / 32;
  const int low = Byte(block + 4, sub / 2) >> (sub % 2 * 4) & 15;
  const int high = Word(block + 2) >> (2 * sub) & 3;
  return HalfValue(Word(block)) * ((low | high << 4) - 32) *
         Iq4Value(Nibble(block + 8 + 16 * sub, j % 32));
}

double E2m1Value(int code) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kValues[code & 7] : kValues[code & 7];
}

double ElementOfMxfp4(const std::byte* block, int j) {
  return std::ldexp(E2m1Value(Nibble(block + 1, j)), Byte(block, 0) - 127);
}

double ElementOfNvfp4(const std::byte* block, int j) {
  const int code = Byte(block, j / 16);
  const double scale = code == 127 ? 0.0 : E4m3Value(code & 127);
  const int pair = Byte(block + 4 + j / 16 * 8, j % 8);
  return scale * E2m1Value(j % 16 < 8 ? pair & 15 : pair >> 4);
}

// NF4 to seven digits, and twelfths of FP4.
double FloatTableValue(DType type, int code) {
  constexpr double kNf4[] = {-1,         -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734,
                             -0.0910500, 0,          0.0795803,  0.1609302,  0.2461123,  0.3379152,
                             0.4407098,  0.5626170,  0.7229568,  1};
  constexpr double kFp4[] = {0, 0.0625, 8, 12, 4, 6, 2, 3};
  if (type == DType::kNF4) return kNf4[code];
  return (code & 8) != 0 ? -kFp4[code & 7] / 12 : kFp4[code & 7] / 12;
}

// What an element is about where d is 1 and the rest of a block is any bits.
float SizeOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return 73.0f;
    case DType::kQ5_0:
    case DType::kQ5_1:
      return 16.0f;
    case DType::kQ4_K:
      return 8.0f * 32.0f;
    case DType::kQ5_K:
      return 16.0f * 32.0f;
    case DType::kQ6_K:
      return 18.0f * 73.0f;
    case DType::kQ2_K:
      return 8.0f * 2.0f;
    case DType::kQ3_K:
      return 18.0f * 2.0f;
    case DType::kIQ4_NL:
      return 70.0f;
    case DType::kIQ4_XS:
      return 18.0f * 70.0f;
    case DType::kF4_16:
      return 3.0f;
    case DType::kNF4:
    case DType::kFP4:
      return 0.5f;
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return 50.0f;
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return 130.0f;
    default:
      return 8.0f;
  }
}

// The head of a block of the normal form, whose codes are random bits already.
void PutGroupedHead(DType type, float size, std::mt19937& random, std::byte* block) {
  std::uniform_real_distribution<float> factor(0.5f, 1.5f);
  float scale = size / 8.0f * factor(random);
  if (type == DType::kG8) scale = size / 73.0f * factor(random);
  if (type == DType::kF8) scale = size / 100.0f * factor(random);
  if (type == DType::kF4_16 || type == DType::kNF4 || type == DType::kFP4) {
    scale = size / SizeOf(type) * factor(random);
  }
  if (type == DType::kF4_16) {
    const float second = size / SizeOf(type) * factor(random);
    std::memcpy(block + 4, &second, 4);
  }
  std::memcpy(block, &scale, 4);
  if (type == DType::kG8) block[4] = static_cast<std::byte>(random() & 255);
  if (type == DType::kG4 || type == DType::kG4_128)
    block[4] = static_cast<std::byte>(random() & 15);
  if (type != DType::kF8) return;
  for (int j = 4; j < 36; ++j) {  // without NaN
    if ((Byte(block, j) & 127) == 127) block[j] = std::byte{0x7e};
  }
}

}  // namespace

double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

uint16_t HalfBits(float value) {
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(static_cast<double>(value)), &exponent);
  if (value == 0.0f || exponent + 14 <= 0) return 0;
  int bits = static_cast<int>(std::lrint(mantissa * 2048.0));
  if (bits == 2048) {
    bits = 1024;
    ++exponent;
  }
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) | (bits - 1024));
}

double ElementOf(const WeightSource& source, int64_t row, int64_t col) {
  const int elements = BlockElements(source.type);
  const std::byte* block =
      source.data + row * source.RowBytes() + col / elements * BlockBytes(source.type);
  const int j = static_cast<int>(col % elements);
  switch (source.type) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, block, 4);
      return value;
    }
    case DType::kF16:
      return HalfValue(Word(block));
    case DType::kBF16: {
      const uint32_t bits = static_cast<uint32_t>(Word(block)) << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
    case DType::kQ8_0:
      return HalfValue(Word(block)) * Signed(block + 2, j);
    case DType::kQ4_0:
      return HalfValue(Word(block)) * (Nibble(block + 2, j) - 8);
    case DType::kQ4_1:
      return HalfValue(Word(block)) * Nibble(block + 4, j) + HalfValue(Word(block + 2));
    case DType::kQ5_0:
      return HalfValue(Word(block)) * (Nibble(block + 6, j) + 16 * Bit(block + 2, j) - 16);
    case DType::kQ5_1:
      return HalfValue(Word(block)) * (Nibble(block + 8, j) + 16 * Bit(block + 4, j)) +
             HalfValue(Word(block + 2));
    case DType::kQ4_K:
      return ElementOfK45(block, j, false);
    case DType::kQ5_K:
      return ElementOfK45(block, j, true);
    case DType::kQ6_K:
      return ElementOfQ6(block, j);
    case DType::kQ2_K:
      return ElementOfQ2(block, j);
    case DType::kQ3_K:
      return ElementOfQ3(block, j);
    case DType::kIQ4_NL:
      return HalfValue(Word(block)) * Iq4Value(Nibble(block + 2, j));
    case DType::kIQ4_XS:
      return ElementOfIq4Xs(block, j);
    case DType::kMXFP4:
      return ElementOfMxfp4(block, j);
    case DType::kG4:
    case DType::kG4_128:
      return FloatOf(block) * (Nibble(block + 5 + j / 32 * 16, j % 32) - Signed(block, 4));
    case DType::kNVFP4:
      return ElementOfNvfp4(block, j);
    case DType::kF4_16:
      return FloatOf(block + j / 16 * 4) * E2m1Value(Nibble(block + 8, j));
    case DType::kNF4:
    case DType::kFP4:
      return FloatOf(block) * FloatTableValue(source.type, Nibble(block + 4 + j / 32 * 16, j % 32));
    case DType::kG8:
      return FloatOf(block) * (Signed(block + 5, j) - Signed(block, 4));
    case DType::kF8:
      return FloatOf(block) * E4m3Value(Byte(block + 4, j));
    default:
      return HalfValue(GridD(source.type, block)) * GridElement(source.type, block, j);
  }
}

std::vector<double> RowOf(const Weight& weight, int64_t row) {
  std::vector<double> values;
  for (const WeightSource& part : weight.parts) {
    if (row < part.rows) {
      for (int64_t col = 0; col < part.cols; ++col) values.push_back(ElementOf(part, row, col));
      return values;
    }
    row -= part.rows;
  }
  return values;
}

std::byte* WeightStore::Reserve(int64_t bytes) {
  memory_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
  return memory_.back().get();
}

WeightSource WeightStore::Random(DType type, int64_t rows, int64_t cols, float size) {
  WeightSource source{type, rows, cols, nullptr};
  std::byte* data = Reserve(source.Bytes());
  source.data = data;
  std::normal_distribution<float> normal(0.0f, size);
  if (BlockElements(type) == 1) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float value = normal(random_);
      const uint16_t half = type == DType::kF16 ? HalfBits(value) : [value] {
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        return static_cast<uint16_t>(bits >> 16);
      }();
      if (type == DType::kF32) std::memcpy(data + 4 * i, &value, 4);
      if (type != DType::kF32) std::memcpy(data + 2 * i, &half, 2);
    }
    return source;
  }
  std::uniform_real_distribution<float> factor(0.5f, 1.5f);
  const int block_bytes = BlockBytes(type);
  for (int64_t at = 0; at < source.Bytes(); at += block_bytes) {
    for (int i = 0; i < block_bytes; ++i) data[at + i] = static_cast<std::byte>(random_() & 255);
    if (grouped::IsGrouped(type)) {
      PutGroupedHead(type, size, random_, data + at);
      continue;
    }
    const float d = size / SizeOf(type);
    if (type == DType::kNVFP4) {  // scales in eighths of the power of two
      const int exponent = std::clamp(std::ilogb(size / 3.0f) + 7, 0, 14);
      for (int i = 0; i < 4; ++i) {
        data[at + i] = static_cast<std::byte>(exponent << 3 | static_cast<int>(random_() & 7));
      }
      continue;
    }
    if (type == DType::kMXFP4) {
      const int exponent = std::ilogb(size / 3.0f) + static_cast<int>(random_() % 3);
      data[at] = static_cast<std::byte>(127 + exponent);
      continue;
    }
    const uint16_t scale = HalfBits(d * factor(random_));
    if (IsGridType(type)) {
      PutGridD(type, scale, data + at);
      continue;
    }
    const uint16_t minimum =
        HalfBits(type == DType::kQ4_1 || type == DType::kQ5_1 ? -size * factor(random_)
                                                              : size / 32.0f * factor(random_));
    const int place = type == DType::kQ6_K   ? 208
                      : type == DType::kQ2_K ? 80
                      : type == DType::kQ3_K ? 108
                                             : 0;
    std::memcpy(data + at + place, &scale, 2);
    if (type == DType::kQ2_K) std::memcpy(data + at + place + 2, &minimum, 2);
    if (type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K ||
        type == DType::kQ5_K) {
      std::memcpy(data + at + 2, &minimum, 2);
    }
  }
  return source;
}

Weight WeightStore::RandomWeight(DType type, int64_t rows, int64_t cols, float size) {
  return Weight{.name = DTypeName(type),
                .parts = {Random(type, rows, cols, size)},
                .rows = rows,
                .cols = cols};
}

Weight WeightStore::RandomVector(int64_t cols, float centre, float size) {
  WeightSource source{DType::kF32, 1, cols, nullptr};
  std::byte* data = Reserve(source.Bytes());
  source.data = data;
  std::normal_distribution<float> normal(centre, size);
  for (int64_t i = 0; i < cols; ++i) {
    const float value = normal(random_);
    std::memcpy(data + 4 * i, &value, 4);
  }
  return Weight{.name = "vector", .parts = {source}, .rows = 1, .cols = cols};
}

}  // namespace quire::kernels::test
