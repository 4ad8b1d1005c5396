#include "kernels/cpu/attention.h"
#include "kernels/cpu/latent_append.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/routing.h"
#include "kernels/cpu/vec16_avx512.h"

namespace quire::kernels::cpu {

const KernelTable& Avx512Kernels() {
  using V = Vec16Avx512;
  static constexpr KernelTable kTable = {
      "avx512",        V::kTileRows,        V::kDirectRows,
      PackTiles<V>,    Linear<V>,           Embed<V>,
      Norm<V>,         SliceGate<V>,        HeadSquares<V>,
      RopeAppend<V>,   LatentAppend<V>,     Attend<V>,
      RouterLogits<V>, ChooseExperts<V>,    CombineExperts<V>,
      Activate<V>,     RecurrentTable<V>(),
  };
  return kTable;
}

}  // namespace quire::kernels::cpu
