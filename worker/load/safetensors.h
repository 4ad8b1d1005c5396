// Reads one safetensors file: the place of each tensor, with every claim of its header checked.
//
// The format: eight bytes of header length, a JSON header, then the tensors without gap or overlap.
// Read as hostile input.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "worker/load/tensor_table.h"

namespace quire::load {

// The format's own limit.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Adds the tensors of the file to `table`. INVALID_ARGUMENT naming file and tensor when the header
// is wrong: a length past the end, bad JSON, a shape that overflows or disagrees with its bytes,
// gaps, overlaps, data missing at the end. A tensor of a type that cannot be computed with is added
// without DType.
absl::Status ReadSafetensors(std::span<const std::byte> bytes, const std::string& path,
                             TensorTable& table);

}  // namespace quire::load
