// How the ops of a CpuProgram share their work among threads; included by the files that hold ops.
#pragma once

#include <algorithm>

#include "kernels/cpu/cpu_program.h"

namespace quire::kernels::cpu {

template <class Task>
void CpuProgram::Share(int count, int least, const Task& task) {
  constexpr int kPiecesPerThread = 4;
  if (count <= 0) return;
  const int pieces = std::clamp(count / std::max(1, least), 1, pool_.threads() * kPiecesPerThread);
  if (pieces == 1) {
    task(0, count, 0);
    return;
  }
  pool_.Run(pieces, [&](int piece, int thread) {
    const int begin = static_cast<int>(static_cast<int64_t>(count) * piece / pieces);
    const int end = static_cast<int>(static_cast<int64_t>(count) * (piece + 1) / pieces);
    task(begin, end, thread);
  });
}

}  // namespace quire::kernels::cpu
