// What the int8 class needs besides the sixteen lanes of vec16_plain.h: its meaning in plain C++.
#pragma once

#include <cmath>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec16_plain.h"

namespace quire::kernels::cpu {

struct Vec16Int8Plain : Vec16Plain {
  // Whether Dot takes signed codes 128 higher, as unsigned bytes.
  static constexpr bool kUnsignedCodes = false;
  static constexpr int kInt8TileRows = 2;
  static constexpr int kInt8TilePanels = 1;
  static constexpr int kInt8DirectRows = 0;
  static constexpr int kInt8DirectPairRows = 0;
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
  // The lowest byte of each lane.
  static void StoreBytes(std::byte* p, I a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::byte>(a.v[i] & 255u);
  }
};

}  // namespace quire::kernels::cpu
