// Products of tiles of eight-bit numbers: one element after another.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/emulate/product.h"

namespace quire::kernels::cuda::emulate {
namespace {

uint8_t ByteOf(uint32_t word, uint32_t i) { return static_cast<uint8_t>(word >> (8 * i)); }

// Element (row, k) of a, k and column of b: byte k % 4 of the register of its half of k.
uint8_t A(const ProductTile& tile, uint32_t row, uint32_t k) {
  return ByteOf(tile.a[row / 8 + k / 16 * 2][k % 16 / 4][row % 8], k % 4);
}
uint8_t B(const ProductTile& tile, uint32_t k, uint32_t column) {
  return ByteOf(tile.b[k / 16][k % 16 / 4][column], k % 4);
}

float SumOfInt8(const ProductTile& tile, uint32_t row, uint32_t column, float d) {
  uint32_t sum;
  std::memcpy(&sum, &d, 4);
  for (uint32_t k = 0; k < 32; ++k) {
    const int product =
        static_cast<int8_t>(A(tile, row, k)) * static_cast<int8_t>(B(tile, k, column));
    sum += static_cast<uint32_t>(product);
  }
  std::memcpy(&d, &sum, 4);
  return d;
}

// Sign, four bits of exponent, three of mantissa; exponent 0 is subnormal, 0x7f no number.
double E4m3(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 127) == 127) return std::nan("");
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128) != 0 ? -size : size;
}

float SumOfE4m3(const ProductTile& tile, uint32_t row, uint32_t column, float d) {
  double sum = d;
  for (uint32_t k = 0; k < 32; ++k) {
    sum += E4m3(A(tile, row, k)) * E4m3(B(tile, k, column));
  }
  return static_cast<float>(sum);
}

}  // namespace

void MultiplyBytes(ProductTile& tile) {
  const bool integers = tile.element == emulated::Element::kInt8;
  for (uint32_t column = 0; column < 8; ++column) {
    for (uint32_t row = 0; row < 16; ++row) {
      float* d = tile.d[row % 8 * 4 + column / 2] + row / 8 * 2 + column % 2;
      *d = integers ? SumOfInt8(tile, row, column, *d) : SumOfE4m3(tile, row, column, *d);
    }
  }
  tile.minus_zero = false;
}

}  // namespace quire::kernels::cuda::emulate
