#include "kernels/cpu/amx_numbers.h"

#include <random>

namespace quire::kernels::cpu {
namespace {

uint16_t Number(std::mt19937& random, bool least) {
  constexpr uint32_t kExponents[8] = {0, 30, 120, 124, 126, 127, 128, 131};
  const auto bits = static_cast<uint32_t>(random());
  const uint32_t exponent = least ? bits >> 16 & 1 : kExponents[bits >> 16 & 7];
  return static_cast<uint16_t>((bits & 0x807f) | exponent << 7);
}

}  // namespace

AmxNumbers MakeAmxNumbers() {
  std::mt19937 random(7);
  AmxNumbers numbers;
  for (int row = 0; row < kAmxRows; ++row) {
    for (int i = 0; i < AmxNumbers::kColumns; ++i) {
      numbers.x[row * AmxNumbers::kColumns + i] = Number(random, row % 4 == 3);
    }
  }
  for (auto& panel : numbers.weights) {
    for (uint16_t& weight : panel) weight = Number(random, false);
  }
  return numbers;
}

}  // namespace quire::kernels::cpu
