// What a model's recurrent layers are, which keep a state in place of keys and values.
//
// A value; part of ModelConfig.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace quire::load {

struct RecurrentConfig {
  enum class Kind : uint8_t { kNone, kShortConvolution, kGatedDelta, kMamba2 };
  Kind kind = Kind::kNone;
  int taps = 0;         // of the convolution
  bool biases = false;  // of a short convolution and its projections, or of Mamba-2's convolution
  // Of the gated delta rule, and of Mamba-2: groups, heads, the state's width, a head's width.
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool packed = false;        // one tensor holds q, k, v and z of each key head in turn
  bool packed_gates = false;  // another b and a
  // The value heads of a key head are not neighbours but key_heads apart, as GGUF files have them.
  bool tiled = false;

  bool Exists() const { return kind != Kind::kNone; }
};

struct ModelConfig;

// Whether the layers that ModelConfig::layer_windows names as recurrent can be; the status names
// the field.
absl::Status CheckRecurrentLayers(const ModelConfig& config);

// For CanonicalText; empty where a model has no such layers.
std::string RecurrentText(const ModelConfig& config);

}  // namespace quire::load
