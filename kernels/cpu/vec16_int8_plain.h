// What the int8 class and w8a8 need besides the sixteen lanes of vec16_plain.h: its meaning in
// plain C++.
#pragma once

#include <cmath>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec16_plain.h"

namespace quire::kernels::cpu {

struct Vec16Int8Plain : Vec16Plain {
  // Whether Dot takes signed codes 128 higher, as unsigned bytes.
  static constexpr bool kUnsignedCodes = false;
  static constexpr bool kDotsInWords = false;  // Int8WordBlock instead of Dot
  static constexpr int kInt8TileRows = 2;
  static constexpr int kInt8TilePanels = 1;
  static constexpr int kInt8DirectRows = 0;
  static constexpr int kInt8DirectPairRows = 0;
  static constexpr int kRoundedTileRows = 2;
  static constexpr int kWordDirectRows = 1;  // rows of a product of words that reads codes once
  static const KernelTable& FloatKernels() { return ReferenceKernels(); }

  // acc + the sum of the four products of a lane's bytes: codes as kSigned says, q signed.
  template <bool kSigned>
  static I Dot(I acc, I codes, I q) {
    for (int i = 0; i < 16; ++i) {
      for (int shift = 0; shift < 32; shift += 8) {
        const uint8_t byte = static_cast<uint8_t>(codes.v[i] >> shift);
        const int code = kSigned ? static_cast<int8_t>(byte) : byte;
        acc.v[i] += static_cast<uint32_t>(code * static_cast<int8_t>(q.v[i] >> shift));
      }
    }
    return acc;
  }
  // To the nearest integer, halves to the even one.
  static I RoundToInt(F x) {
    I r;
    for (int i = 0; i < 16; ++i) {
      r.v[i] = static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(x.v[i])));
    }
    return r;
  }
  // Of lanes below 2^31.
  static I MaxInt(I a, I b) {
    for (int i = 0; i < 16; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static uint32_t ReduceMaxInt(I a) {
    uint32_t largest = 0;
    for (int i = 0; i < 16; ++i) largest = a.v[i] > largest ? a.v[i] : largest;
    return largest;
  }
  static int32_t ReduceAddInt(I a) {
    uint32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += a.v[i];
    return static_cast<int32_t>(sum);
  }
  // Bytes 0 and 2 of each lane as two int16.
  static I EvenWords(I a) {
    for (uint32_t& v : a.v) v = WordsOf(static_cast<int8_t>(v), static_cast<int8_t>(v >> 16));
    return a;
  }
  // Bytes 1 and 3.
  static I OddWords(I a) {
    for (uint32_t& v : a.v) v = WordsOf(static_cast<int8_t>(v >> 8), static_cast<int8_t>(v >> 24));
    return a;
  }
  static I SubWords(I a, I b) {
    for (int i = 0; i < 16; ++i) {
      a.v[i] = WordsOf(LowWord(a.v[i]) - LowWord(b.v[i]), HighWord(a.v[i]) - HighWord(b.v[i]));
    }
    return a;
  }
  // acc += the sum of the two products of a lane's int16.
  static void DotWords(I& acc, I a, I b) {
    for (int i = 0; i < 16; ++i) {
      const int32_t sum = LowWord(a.v[i]) * LowWord(b.v[i]) + HighWord(a.v[i]) * HighWord(b.v[i]);
      acc.v[i] += static_cast<uint32_t>(sum);
    }
  }
  static void StoreInts(int32_t* p, I a) { std::memcpy(p, a.v, sizeof(a.v)); }
  // The lowest byte of each lane.
  static void StoreBytes(std::byte* p, I a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::byte>(a.v[i] & 255u);
  }

 private:
  static int32_t LowWord(uint32_t v) { return static_cast<int16_t>(v); }
  static int32_t HighWord(uint32_t v) { return static_cast<int16_t>(v >> 16); }
  static uint32_t WordsOf(int32_t low, int32_t high) {
    return (static_cast<uint32_t>(low) & 0xffffu) | static_cast<uint32_t>(high) << 16;
  }
};

}  // namespace quire::kernels::cpu
