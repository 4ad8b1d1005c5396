// The table of kernels of AMX's class, over a type of vectors and a unit that multiplies blocks.
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/latent_append.h"
#include "kernels/cpu/linear_amx.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/routing.h"

namespace quire::kernels::cpu {

// All but the products is of the float32 class. No rows go without tiles.
template <class V, class Unit>
constexpr KernelTable AmxTable(const char* name) {
  return {
      name,
      kAmxTileRows,
      0,
      PackBFloatRows<V>,
      LinearAmx<V, Unit>,
      Embed<V>,
      Norm<V>,
      SliceGate<V>,
      HeadSquares<V>,
      RopeAppend<V>,
      LatentAppend<V>,
      Attend<V>,
      RouterLogits<V>,
      ChooseExperts<V>,
      CombineExperts<V>,
      Activate<V>,
      RecurrentTable<V>(),
  };
}

}  // namespace quire::kernels::cpu
