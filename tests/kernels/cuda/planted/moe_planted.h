// Wrong forms of the kernels of a mixture, with the parameters of the right ones: what tests of
// whole steps must find.
#pragma once

#include "kernels/cuda/runtime/kernel_handle.h"

namespace quire::kernels::cuda::test {

// Of equal scores, a token at an odd place of the batch takes the higher id.
runtime::KernelHandle RouteWithTiesByPosition();
// A token's experts are summed from the choice on that its place in the batch names.
runtime::KernelHandle CombineInOrderOfBatch();

}  // namespace quire::kernels::cuda::test
