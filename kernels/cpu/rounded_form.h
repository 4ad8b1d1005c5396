// The class w8a8: activations rounded as a checkpoint asks, the rule of its sums, and how rounded
// rows lie.
//
// Rounding, of the inputs that share a scale (a token's, or 128 neighbours of them):
//   int8      scale = max |x| / 127.5, q = x / scale within −128 … 127, to the nearest even
//   int8 with a zero    scale = (max − min) / 255 of a range that holds 0, zero = −128 − min /
//   scale
//             within −128 … 127, to the nearest even; q = x / scale + zero as above; codes are
//             q − zero
//   e4m3      scale = max |x| / 448, q = x / scale within ±448, to the nearest even e4m3
// A static scale takes the place of these. Each step is one rounded float32 operation: this is what
// compressed-tensors computes. Inputs whose own scale is below FLT_MIN count as zeros. What is not
// finite gives its scale NaN and codes of zero, so that its own row becomes NaN.
//
// The rule of sums, by part of a matrix:
//   kWords   int8 codes, and a weight of kG8 with one scale for each row: the sum S of all K
//            products is an exact integer, y = float(S) · (scale · weight scale).
//   kCodes   e4m3 codes and a weight of kF8: products are exact. Each 128 k are one fma chain from
//            zero in the order of k. Where both scales hold for a whole row, chunk sums c are added
//            in order and y = sum · (scale · weight scale). Else y = fma(c, scale · weight scale,
//            y) from zero, in order, with the scales of the chunk.
//   kValues  any other weight: its values are the float32 of their format, and the weight scale
//            above is 1. So int8 codes meet weights in groups, and rows that are no whole runs
//            of 32.
//   kPlain   no rounding: the product of the float32 class.
// Rows, tiles, threads and instruction sets change no bit of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/activation_rounding.h"
#include "kernels/step_program.h"

namespace quire::kernels::cpu {

enum class RoundedWay : uint8_t { kPlain, kWords, kCodes, kValues };

// Of x that some parts of a matrix share.
struct RoundingOfInput {
  ActivationRounding rule;
  bool words = false;  // for kWords, else floats

  friend bool operator==(const RoundingOfInput&, const RoundingOfInput&) = default;
};

struct RoundingOfPart {
  RoundedWay way = RoundedWay::kPlain;
  int input = 0;          // of Roundings::inputs
  bool by_chunk = false;  // each 128 k have their scales
};

struct Roundings {
  std::vector<RoundingOfInput> inputs;
  std::vector<RoundingOfPart> parts;  // by part; empty: the matrix is multiplied as in float32

  bool any() const { return !parts.empty(); }
};

Roundings RoundingsOf(const Weight& weight);

// x of one input. Words are [chunk of kWordChunk k][tile][k / 4][2][row]: pairs of int16, of the
// first and the third of four k, then of the others. Floats are [tile][k][row]. Scales are
// [group][row].
struct RoundedInput {
  int32_t* words = nullptr;
  float* floats = nullptr;
  float* scales = nullptr;
};

inline constexpr int kWordChunk = 256;
inline constexpr int kScaleGroup = 128;  // the only group of inputs that is served: kChunk

// Where a chunk of a tile begins, of `all_rows` rows.
constexpr int64_t WordPlace(int64_t begin, int64_t end, int64_t all_rows, int64_t first_row) {
  return begin / 2 * all_rows + (end - begin) / 2 * first_row;
}

// Numbers of four bytes that an input takes, a multiple of 16: its codes, its scales.
int64_t RoundedCodes(const RoundingOfInput& input, int64_t k, int64_t rows);
int64_t RoundedScales(const RoundingOfInput& input, int64_t k, int64_t rows);
// Bytes for the inputs of a matrix.
int64_t RoundedBytes(const Roundings& roundings, int64_t k, int64_t rows);

// Why the class cannot run a program, in one line; empty: it can.
std::string RefuseRoundings(const StepProgram& program);

}  // namespace quire::kernels::cpu
