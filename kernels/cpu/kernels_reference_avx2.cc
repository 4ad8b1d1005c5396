// The reference kernels: plain C++ lanes. Compiled with fma because the language's own is a slow
// library call without it; a host without AVX2 and fma is not served.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/latent_append.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/routing.h"
#include "kernels/cpu/vec16_plain.h"

namespace quire::kernels::cpu {

const KernelTable& ReferenceKernels() {
  using V = Vec16Plain;
  static constexpr KernelTable kTable = {
      "reference",         V::kTileRows,     V::kDirectRows,    PackTiles<V>,
      Linear<V>,           Embed<V>,         Norm<V>,           SliceGate<V>,
      HeadSquares<V>,      RopeAppend<V>,    LatentAppend<V>,   Attend<V>,
      RouterLogits<V>,     ChooseExperts<V>, CombineExperts<V>, Activate<V>,
      RecurrentTable<V>(),
  };
  return kTable;
}

}  // namespace quire::kernels::cpu
