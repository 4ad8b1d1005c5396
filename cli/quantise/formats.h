// The formats that `quire quantize` writes, and which matrices of a model get which type.
//
// Pure, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/tensor.h"
#include "worker/load/model_files.h"

namespace quire::cli {

// How the matrices of a Hugging Face checkpoint are packed, in compressed-tensors' layouts.
enum class Packing : uint8_t {
  kInt4Groups,  // pack-quantized: four bits, a scale for 128 inputs
  kInt8Packed,  // pack-quantized: eight bits, a scale for each row
  kInt8Rows,    // int-quantized: int8, a scale for each row
  kFp8Rows,     // float-quantized: e4m3, a scale for each row
};
inline constexpr int64_t kInt4Group = 128;
// A row is held as floats, twice, by each thread; wider ones, and empty ones, stay as they are.
inline constexpr int64_t kMaxQuantisedCols = int64_t{1} << 20;

struct QuantiseFormat {
  std::string_view name;
  bool gguf = false;
  kernels::DType type = kernels::DType::kQ8_0;  // GGUF: of most matrices
  bool mixed = false;                           // … of some, more bits
  uint32_t file_type = 0;                       // GGUF's general.file_type
  Packing packing = Packing::kInt4Groups;       // of the others
};
std::span<const QuantiseFormat> QuantiseFormats();
const QuantiseFormat* FindQuantiseFormat(std::string_view name);  // null when there is none

// What a GGUF file's tensor becomes; its own type where it stays.
struct GgufModelTraits {
  int64_t layers = 0;
  int64_t experts = 0;
  bool tied = false;  // without an output matrix of its own
};
GgufModelTraits TraitsOf(const load::GgufFile& file);
kernels::DType GgufTypeFor(const QuantiseFormat& format, const GgufModelTraits& traits,
                           const load::Tensor& tensor);

// Whether a matrix of a checkpoint is packed: it belongs to a layer's product. Embeddings, heads,
// norms, routers and parts for other input than text stay as they are.
bool IsPacked(const QuantiseFormat& format, const load::Tensor& tensor);
// "model.layers.0.mlp.up_proj" of its ".weight".
std::string ModuleOf(const load::Tensor& tensor);

bool IsFloat(const load::Tensor& tensor);

}  // namespace quire::cli
