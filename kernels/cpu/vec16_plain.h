// Sixteen virtual lanes in plain C++: the vector versions must return the same bits.
//
// Every kernel of the float32 class is a template over a type with these members. Each member is
// one IEEE operation per lane in round-to-nearest, so all versions give the same bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/half.h"

namespace quire::kernels::cpu {

struct Vec16Plain {
  struct F {
    float v[16];
  };
  struct I {
    uint32_t v[16];
  };
  static constexpr int kTileRows = 4;    // rows of one register tile of a product
  static constexpr int kTilePanels = 2;  // panels beside each other in it
  static constexpr bool kUnrollBlocks = false;
  static constexpr int kDirectRows = 0;      // up to here weights are decoded in registers
  static constexpr int kDirectPairRows = 0;  // … for two panels at a time

#define QUIRE_LANES(expression)                       \
  F r;                                                \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r
#define QUIRE_INT_LANES(expression)                   \
  I r;                                                \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r

  static F Set(float x) { QUIRE_LANES(x); }
  static F Zero() { return Set(0.0f); }
  static F Load(const float* p) { QUIRE_LANES(p[i]); }
  static F LoadPartial(const float* p, int n) { QUIRE_LANES(i < n ? p[i] : 0.0f); }
  static void Store(float* p, F x) { std::memcpy(p, x.v, sizeof(x.v)); }
  static void StorePartial(float* p, F x, int n) {
    for (int i = 0; i < n && i < 16; ++i) p[i] = x.v[i];
  }
  // Sixteen rows of sixteen, `stride` apart, become [column][row].
  static void Transpose(const float* from, int64_t stride, float* to) {
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 16; ++column) {
        to[16 * column + row] = from[row * stride + column];
      }
    }
  }
  static F Add(F a, F b) { QUIRE_LANES(a.v[i] + b.v[i]); }
  static F Sub(F a, F b) { QUIRE_LANES(a.v[i] - b.v[i]); }
  static F Mul(F a, F b) { QUIRE_LANES(a.v[i] * b.v[i]); }
  static F Div(F a, F b) { QUIRE_LANES(a.v[i] / b.v[i]); }
  static F Fma(F a, F b, F c) { QUIRE_LANES(std::fma(a.v[i], b.v[i], c.v[i])); }
  // a where a > b, else b: what the x86 instruction does with NaN and signed zeros.
  static F Max(F a, F b) { QUIRE_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
  static F Min(F a, F b) { QUIRE_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
  static F Neg(F a) { QUIRE_LANES(-a.v[i]); }
  static F Abs(F a) { QUIRE_LANES(std::fabs(a.v[i])); }
  // x where a < b, else y.
  static F SelectLess(F a, F b, F x, F y) { QUIRE_LANES(a.v[i] < b.v[i] ? x.v[i] : y.v[i]); }
  // Lanes begin … end − 1 of x, `fill` elsewhere.
  static F KeepRange(F x, int begin, int end, float fill) {
    QUIRE_LANES(i >= begin && i < end ? x.v[i] : fill);
  }
  // Lanes are added in halves: i and i + 8, then 4, 2, 1.
  static float ReduceAdd(F x) {
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) x.v[i] = x.v[i] + x.v[i + half];
    }
    return x.v[0];
  }
  static float ReduceMax(F x) {
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
    }
    return x.v[0];
  }

  static I SetInt(uint32_t x) { QUIRE_INT_LANES(x); }
  static I LoadInt(const std::byte* p) {
    I r;
    std::memcpy(r.v, p, sizeof(r.v));
    return r;
  }
  static I And(I a, I b) { QUIRE_INT_LANES(a.v[i] & b.v[i]); }
  static I Or(I a, I b) { QUIRE_INT_LANES(a.v[i] | b.v[i]); }
  static I AddInt(I a, I b) { QUIRE_INT_LANES(a.v[i] + b.v[i]); }
  template <int kBits>
  static I ShiftLeft(I a) {
    QUIRE_INT_LANES(a.v[i] << kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    QUIRE_INT_LANES(a.v[i] >> kBits);
  }
  // The highest bit follows.
  static I ShiftRightSigned(I a, int bits) {
    QUIRE_INT_LANES(static_cast<uint32_t>(static_cast<int32_t>(a.v[i]) >> bits));
  }
  // By words of 16 bits.
  template <int kBits>
  static I ShiftLeftWords(I a) {
    constexpr uint32_t kKept = 0xffffu << kBits & 0xffffu;
    QUIRE_INT_LANES(a.v[i] << kBits & (kKept << 16 | kKept));
  }
  template <int kBits>
  static I ShiftRightSignedWords(I a) {
    QUIRE_INT_LANES(static_cast<uint32_t>(static_cast<int32_t>(a.v[i]) >> (16 + kBits) << 16) |
                    static_cast<uint16_t>(static_cast<int16_t>(a.v[i]) >> kBits));
  }
  static I ShiftLeftBy(I a, int bits) { QUIRE_INT_LANES(a.v[i] << bits); }
  // Byte kByte of each lane in its highest byte, zeros below.
  template <int kByte>
  static I ByteToTop(I a) {
    QUIRE_INT_LANES(a.v[i] >> (8 * kByte) << 24);
  }
  static I SubBytes(I a, I b) {
    I r;
    for (int i = 0; i < 16; ++i) {
      r.v[i] = 0;
      for (int shift = 0; shift < 32; shift += 8) {
        r.v[i] |= (((a.v[i] >> shift) - (b.v[i] >> shift)) & 255u) << shift;
      }
    }
    return r;
  }
  // Bytes 0 … 15 of each lane become the table's numbers.
  static I LookUp(I a, const int8_t (&table)[16]) {
    I r;
    for (int i = 0; i < 16; ++i) {
      r.v[i] = 0;
      for (int shift = 0; shift < 32; shift += 8) {
        r.v[i] |= static_cast<uint32_t>(static_cast<uint8_t>(table[a.v[i] >> shift & 15])) << shift;
      }
    }
    return r;
  }
  // The lowest four bits of each lane become the table's numbers.
  static F LookUpFloat(I a, const float (&table)[16]) { QUIRE_LANES(table[a.v[i] & 15u]); }
  static I ShiftRightBy(I a, int bits) { QUIRE_INT_LANES(a.v[i] >> bits); }
  static F ToFloat(I a) { QUIRE_LANES(static_cast<float>(static_cast<int32_t>(a.v[i]))); }
  static F AsFloat(I a) { QUIRE_LANES(std::bit_cast<float>(a.v[i])); }
  static I AsInt(F a) { QUIRE_INT_LANES(std::bit_cast<uint32_t>(a.v[i])); }

  static I LoadUnsignedBytes(const std::byte* p) { QUIRE_INT_LANES(static_cast<uint32_t>(p[i])); }
  static I LoadSignedBytes(const std::byte* p) {
    QUIRE_INT_LANES(static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(p[i]))));
  }
  static F LoadHalf(const std::byte* p) { QUIRE_LANES(HalfToFloat(ReadU16(p + 2 * i))); }
  static F LoadBFloat(const std::byte* p) { QUIRE_LANES(BFloatToFloat(ReadU16(p + 2 * i))); }
  static void StoreBFloat(std::byte* p, F x) {
    for (int i = 0; i < 16; ++i) {
      const uint16_t bits = FloatToBFloat(x.v[i]);
      std::memcpy(p + 2 * i, &bits, 2);
    }
  }
  static void StoreHalf(std::byte* p, F x) {
    for (int i = 0; i < 16; ++i) {
      const uint16_t bits = FloatToHalf(x.v[i]);
      std::memcpy(p + 2 * i, &bits, 2);
    }
  }
#undef QUIRE_LANES
#undef QUIRE_INT_LANES

 private:
  static uint16_t ReadU16(const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, 2);
    return bits;
  }
};

}  // namespace quire::kernels::cpu
