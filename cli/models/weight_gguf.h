// A made-up model as one GGUF file, as llama.cpp's files name things.
//
// Pure, any thread.
#pragma once

#include <string>

#include "cli/models/weight_files.h"

namespace quire::cli {

// The type of a matrix with rows of so many values: Q4_K where they are whole super-blocks of 256,
// else Q4_0, as files of that name have it.
WeightType QuantOf(int64_t cols);

// The file: metadata, tokenizer and list of tensors in its head, then the tensors. Llama's scaled
// frequencies, which are no made-up values, are in the head too.
// Matrices are of `type`: kF16, or kQ4K where rows are whole super-blocks.
WeightShard LayOutGguf(const ModelShape& shape, int layers, WeightType type);

}  // namespace quire::cli
