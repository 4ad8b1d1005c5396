// The identity of a model: a digest of what it computes, independent of where it is stored.
//
// A pure function; reads at most 192 KiB of each tensor.
#pragma once

#include <string>
#include <string_view>

#include "worker/load/model_config.h"
#include "worker/load/tensor_table.h"

namespace quire::load {

inline constexpr size_t kDigestedBytes = 64 << 10;

// SHA-256 over the canonical configuration, the digest of the text bundle, and for every tensor in
// order of name its name, type, shape and kDigestedBytes from start, middle and end (all of it when
// it is smaller than three times that). As 64 hexadecimal digits.
std::string ModelId(const ModelConfig& config, std::string_view text_bundle_digest,
                    const TensorTable& tensors);

}  // namespace quire::load
