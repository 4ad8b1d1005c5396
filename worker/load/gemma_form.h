// What only Gemma 4 has: heads that depend on the kind of layer, layers that read the keys of
// others, and inputs of each layer from the token itself.
//
// A value, part of ModelConfig.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace quire::load {

struct ModelConfig;

struct GemmaForm {
  int full_head_dim = 0;  // of layers with full attention; 0: the model is no Gemma 4
  int full_kv_heads = 0;
  bool keys_are_values = false;  // in full layers: values are the projection of keys
  // The last layers: each reads keys and values of the last layer of its kind before them all.
  int shared_layers = 0;
  bool wide_shared = false;  // those have an mlp of twice the width
  int layer_input = 0;       // what each layer gets from the token itself; 0: nothing
};

// INVALID_ARGUMENT names the field that does not fit the rest of the configuration.
absl::Status CheckGemmaForm(const ModelConfig& config);

// For CanonicalText; empty for other families.
std::string GemmaText(const GemmaForm& form);

}  // namespace quire::load
