// The small parts of attention: sizes of tiles, the keys that a row sees, the content of the
// workspace.
#pragma once

#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/sync.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/soft_cap.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary

inline constexpr int kAttentionKeys = 64;   // of a tile
inline constexpr int kAttentionSpan = 512;  // keys
inline constexpr float kNoScore = -1e30f;   // below every score; differences of it stay finite

// Which keys a lane's two rows (g and g + 8 of the warp's sixteen) may see: [first, last].
struct RowKeys {
  int first[2];
  int last[2];
};

// Octets of rows in the workspace from `from` on, and their maxima and sums, as
// AttentionSums::Store left them.
struct SavedRows {
  const float* from;
  const float* tail;

  QUIRE_DEVICE static void Read(const float* at, float (&v)[4]) {
    const Vector16 w = Load16(at);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = FloatOfBits(w.word[i]);
  }
  QUIRE_DEVICE void Octet(int o, float (&v)[4]) const { Read(from + o * 128, v); }
  QUIRE_DEVICE void Tail(float (&v)[4]) const { Read(tail, v); }
};

}  // namespace quire::kernels::cuda
