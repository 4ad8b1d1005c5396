#include "tests/kernels/grid_elements.h"

#include <cstring>

#include "kernels/grid_tables.h"

namespace quire::kernels::test {
namespace {

int ByteAt(const std::byte* p, int i) { return static_cast<uint8_t>(p[i]); }
int WordAt(const std::byte* p, int i) { return ByteAt(p, 2 * i) | ByteAt(p, 2 * i + 1) << 8; }
// Bits first … first + count − 1 of a string of bits.
int BitsAt(const std::byte* p, int first, int count) {
  int value = 0;
  for (int i = 0; i < count; ++i) {
    const int at = first + i;
    value |= (ByteAt(p, at / 8) >> (at % 8) & 1) << i;
  }
  return value;
}

// Where sign j of eight is the product of the seven others, it is not stored.
double StoredSign(const std::byte* p, int first, int j) {
  int ones = 0;
  if (j < 7) return BitsAt(p, first + j, 1) != 0 ? -1.0 : 1.0;
  for (int i = 0; i < 7; ++i) ones += BitsAt(p, first + i, 1);
  return ones % 2 != 0 ? -1.0 : 1.0;
}
double PlainSign(const std::byte* p, int bit) { return BitsAt(p, bit, 1) != 0 ? -1.0 : 1.0; }

double Iq2Magnitude(const uint16_t* grid, int index, int j) {
  constexpr double kMagnitudes[] = {8, 25, 43};
  return kMagnitudes[grid[index] >> (2 * j) & 3];
}
double Iq3Magnitude(const uint16_t* grid, int index, int j) {
  const int place = grid[index] >> (4 * j) & 15;
  if (grid == grid::kIq3S) return 2 * place + 1;
  return place == 7 ? 62 : 4 + 8 * place;
}

double Iq2Element(DType type, const std::byte* block, int j) {
  const int eight = j / 8, i = j % 8;
  if (type == DType::kIQ2_XXS) {
    const std::byte* group = block + 2 + j / 32 * 8;
    const double scale = (0.5 + BitsAt(group, 60, 4)) / 4;
    return scale * Iq2Magnitude(grid::kIq2Xxs, ByteAt(group, eight % 4), i) *
           StoredSign(group, 32 + 7 * (eight % 4), i);
  }
  if (type == DType::kIQ2_XS) {
    const double scale = (0.5 + BitsAt(block + 66, j / 16 * 4, 4)) / 4;
    return scale * Iq2Magnitude(grid::kIq2Xs, BitsAt(block + 2, 16 * eight, 9), i) *
           StoredSign(block + 2, 16 * eight + 9, i);
  }
  const double scale = (0.5 + BitsAt(block + 74, j / 16 * 4, 4)) / 4;
  const int index = ByteAt(block + 2, eight) + 256 * BitsAt(block + 66, 2 * eight, 2);
  return scale * Iq2Magnitude(grid::kIq2S, index, i) * PlainSign(block + 34, j);
}

double Iq3Element(DType type, const std::byte* block, int j) {
  const int four = j / 4;
  if (type == DType::kIQ3_XXS) {
    const std::byte* word = block + 66 + j / 32 * 4;
    const double scale = (0.5 + BitsAt(word, 28, 4)) / 2;
    return scale * Iq3Magnitude(grid::kIq3Xxs, ByteAt(block + 2, four), j % 4) *
           StoredSign(word, j / 8 % 4 * 7, j % 8);
  }
  const double scale = 1 + 2 * BitsAt(block + 106, j / 32 * 4, 4);
  const int index = ByteAt(block + 2, four) + 256 * BitsAt(block + 66, four, 1);
  return scale * Iq3Magnitude(grid::kIq3S, index, j % 4) * PlainSign(block + 74, j);
}

double Iq1Element(DType type, const std::byte* block, int j) {
  const int eight = j / 8;
  int high = 0, scale = 0, negative = 0;
  const std::byte* low = block;
  if (type == DType::kIQ1_S) {
    low = block + 2;
    const std::byte* word = block + 34 + j / 32 * 2;
    high = BitsAt(word, 3 * (eight % 4), 3);
    scale = BitsAt(word, 12, 3);
    negative = BitsAt(word, 15, 1);
  } else {
    high = BitsAt(block + 32, 4 * eight, 3);
    negative = BitsAt(block + 32, 4 * eight + 3, 1);
    scale = BitsAt(block + 48, j / 64 * 16 + j / 16 % 4 * 3, 3);
  }
  const int number = grid::kIq1[ByteAt(low, eight) + 256 * high] >> (2 * (j % 8)) & 3;
  return (2 * scale + 1) * (number - 1 + (negative != 0 ? -0.125 : 0.125));
}

double TernaryElement(DType type, const std::byte* block, int j) {
  if (type == DType::kTQ2_0)
    return BitsAt(block, 8 * (j / 128 * 32 + j % 32) + j / 32 % 4 * 2, 2) - 1;
  int byte = 0, digit = 0;
  if (j < 160) {
    byte = j % 32;
    digit = j / 32;
  } else if (j < 240) {
    byte = 32 + (j - 160) % 16;
    digit = (j - 160) / 16;
  } else {
    byte = 48 + (j - 240) % 4;
    digit = (j - 240) / 4;
  }
  int fraction = ByteAt(block, byte);
  for (int i = 0; i < digit; ++i) fraction = fraction * 3 % 256;
  return fraction * 3 / 256 - 1;
}

}  // namespace

bool IsGridType(DType type) { return type >= DType::kIQ1_S && type <= DType::kQ2_0; }

uint16_t GridD(DType type, const std::byte* block) {
  if (type == DType::kIQ1_M) {
    int bits = 0;
    for (int i = 0; i < 4; ++i) bits |= WordAt(block + 48, i) >> 12 << (4 * i);
    return static_cast<uint16_t>(bits);
  }
  const bool at_end = type == DType::kTQ1_0 || type == DType::kTQ2_0;
  return static_cast<uint16_t>(WordAt(block + (at_end ? BlockBytes(type) - 2 : 0), 0));
}

void PutGridD(DType type, uint16_t bits, std::byte* block) {
  if (type == DType::kIQ1_M) {
    for (int i = 0; i < 4; ++i) {
      const int high = (bits >> (4 * i) & 15) << 4;
      block[49 + 2 * i] = static_cast<std::byte>((ByteAt(block, 49 + 2 * i) & 15) | high);
    }
    return;
  }
  const bool at_end = type == DType::kTQ1_0 || type == DType::kTQ2_0;
  std::memcpy(block + (at_end ? BlockBytes(type) - 2 : 0), &bits, 2);
}

double GridElement(DType type, const std::byte* block, int j) {
  switch (type) {
    case DType::kIQ1_S:
    case DType::kIQ1_M:
      return Iq1Element(type, block, j);
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return Iq3Element(type, block, j);
    case DType::kTQ1_0:
    case DType::kTQ2_0:
      return TernaryElement(type, block, j);
    case DType::kQ1_0:
      return BitsAt(block + 2, j, 1) != 0 ? 1.0 : -1.0;
    case DType::kQ2_0:
      return BitsAt(block + 2, 2 * j, 2) - 1;
    default:
      return Iq2Element(type, block, j);
  }
}

}  // namespace quire::kernels::test
