// The sizes of AMX's class (linear_amx.h).
#pragma once

namespace quire::kernels::cpu {

inline constexpr int kAmxBlock = 32;  // of K
inline constexpr int kAmxRows = 32;   // of one AmxBlock at most
inline constexpr int kAmxTileRows = 16;
inline constexpr int kAmxVectorRows = 4;  // up to here tiles would be mostly empty

}  // namespace quire::kernels::cpu
