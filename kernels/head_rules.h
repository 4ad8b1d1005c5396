// What happens to the heads of q and k before they meet, beside their rotation: norms, and queries
// that grow with their position.
//
// Values.
#pragma once

#include <cstdint>

namespace quire::kernels {

// How q and k are normalised before they turn.
enum class HeadNorm : uint8_t {
  kRms,    // each head alone, all with the same weights [1, head_dim]
  kLayer,  // a layer norm of each head alone, with weights of its own: [1, heads * head_dim]
  kWhole,  // RMS of the heads of all ranks together, weights [1, heads * head_dim]
};

// Position p multiplies q by 1 + rate · ln(1 + ⌊(p + offset) / interval⌋).
struct QueryGrowth {
  float rate = 0.0f;  // 0: it does not
  int offset = 0;
  int interval = 1;
};

}  // namespace quire::kernels
