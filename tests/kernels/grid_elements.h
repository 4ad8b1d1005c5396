// An independent float64 reading of GGUF's types of one to three bits, an element at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace quire::kernels::test {

bool IsGridType(DType type);

// The bits of a block's float16 d: read, and written.
uint16_t GridD(DType type, const std::byte* block);
void PutGridD(DType type, uint16_t bits, std::byte* block);

// Element j of a block whose d is 1.
double GridElement(DType type, const std::byte* block, int j);

}  // namespace quire::kernels::test
