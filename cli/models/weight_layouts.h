// The tensors and settings of made-up models whose families are written as GGUF files alone.
//
// Pure functions, any thread. llama.cpp's converter gives the same names and settings.
#pragma once

#include <vector>

#include "cli/models/gguf_bytes.h"
#include "cli/models/weight_shapes.h"

namespace quire::cli {

// The value of general.architecture.
std::string_view GgufFamily(const ModelShape& shape);

// The settings of a family beyond those that all have.
void AddFamilySettings(const ModelShape& shape, GgufBytes& out);

// TensorsOf with the names, shapes and order of a GGUF file. Requires: OnlyGguf(shape).
std::vector<ShapeTensor> GgufTensorsOf(const ModelShape& shape, int layers);

}  // namespace quire::cli
