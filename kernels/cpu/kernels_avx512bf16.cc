#include "kernels/cpu/attention.h"
#include "kernels/cpu/latent_append.h"
#include "kernels/cpu/linear_bf16.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/routing.h"

namespace quire::kernels::cpu {

// All but the products is of the float32 class. No rows go without tiles.
const KernelTable& Avx512Bf16Kernels() {
  using V = Vec16Bf16;
  static constexpr KernelTable kTable = {
      "avx512bf16",    V::kTileRows,        0,
      PackPairs,       LinearBFloat,        Embed<V>,
      Norm<V>,         SliceGate<V>,        HeadSquares<V>,
      RopeAppend<V>,   LatentAppend<V>,     Attend<V>,
      RouterLogits<V>, ChooseExperts<V>,    CombineExperts<V>,
      Activate<V>,     RecurrentTable<V>(),
  };
  return kTable;
}

}  // namespace quire::kernels::cpu
