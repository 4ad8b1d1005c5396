// How the ops of a CpuProgram share their work among threads; included by the files that hold ops.
#pragma once

#include <algorithm>

#include "kernels/cpu/cpu_program.h"

namespace quire::kernels::cpu {

template <class Task>
void CpuProgram::Share(int count, int least, const Task& task) {
  constexpr int kPiecesPerThread = 8;
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

template <class Task>
void CpuProgram::ShareRows(int least, const Task& task) {
  const auto rows = step_.batch->rows;
  Share(step_.tokens, least, [&](int begin, int end, int) {
    for (size_t row = 0; row < rows.size(); ++row) {
      const int first = rows[row].first_token;
      const int from = std::max(begin, first) - first;
      const int to = std::min(end, first + rows[row].token_count) - first;
      if (from < to) task(static_cast<int>(row), from, to);
    }
  });
}

}  // namespace quire::kernels::cpu
