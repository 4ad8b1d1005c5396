// Rows of activations as eight-bit codes under scales: what checkpoints of the kind W8A8 ask for.
//
// A scale belongs to a row, or to 128 neighbours of it. Its own: the largest magnitude / 127.5 for
// int8, / 448 for e4m3, as compressed-tensors has them; or a static one for all. A code is x /
// scale, to the nearest even number, within −128 … 127 or ±448. What has a scale below the least
// normal float32 is zeros; what holds an infinity or a NaN has the scale NaN and zeros for codes.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

inline constexpr int kEncodeGroup = 128;
inline constexpr int kMostEncoded = 32768;  // the widest row

struct EncodeRowsParams {
  const uint16_t* in = nullptr;  // [rows, width] bfloat16, or float16
  uint8_t* codes = nullptr;      // [rows, width]
  float* scales = nullptr;       // [rows], or [rows, ⌈width / 128⌉] where by_group
  int rows = 0;
  int width = 0;  // a multiple of 32
  bool half = false;
  bool e4m3 = false;      // else int8
  bool by_group = false;  // a scale for each 128 neighbours
  float scale = 0.0f;     // above 0: of every row
};

runtime::Error LaunchEncodeRows(runtime::Runtime& runtime, runtime::StreamId stream,
                                const EncodeRowsParams& params);

}  // namespace quire::kernels::cuda
