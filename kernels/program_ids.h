// How a step program names its buffers and weights: by their places in its lists.
#pragma once

namespace quire::kernels {

using BufferId = int;
using WeightId = int;
inline constexpr int kNoId = -1;

}  // namespace quire::kernels
