// The kinds of scales that tiles of quantised weights have, and where they are.
#pragma once

namespace quire::kernels::cuda {

// Arrays of a tile; a step is the float32 that a code is multiplied by.
enum class QuantScales : int {
  kD,      // [d f16]: step = d
  kDM,     // [d f16][minimum f16]: step = d, least = minimum
  kSuper,  // [scale u8][minimum u8], super [d][dmin]: step = d · scale, least = −dmin · minimum
  kSigned,  // [scale i8], super [d]: step = d · scale
  kFloat,   // [step f32][zero i8], the zeros in the form kGrouped alone
  kPower,   // [exponent u8]: step = 2^(exponent − 128)
  kByte     // [e4m3 without its sign]: step = e4m3(byte)
};

// Bytes of a row's scales of one group, of all arrays.
constexpr int ScaleBytes(QuantScales scales, bool zeros) {
  switch (scales) {
    case QuantScales::kD:
      return 2;
    case QuantScales::kDM:
      return 4;
    case QuantScales::kSuper:
      return 2;
    case QuantScales::kFloat:
      return zeros ? 5 : 4;
    case QuantScales::kSigned:
    case QuantScales::kPower:
    case QuantScales::kByte:
      return 1;
  }
  return 0;
}
// Bytes of a fragment's super scales.
constexpr int SuperBytes(QuantScales scales) {
  return scales == QuantScales::kSuper ? 64 : scales == QuantScales::kSigned ? 32 : 0;
}

}  // namespace quire::kernels::cuda
