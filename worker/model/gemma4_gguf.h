// How Gemma 4's GGUF metadata is read: layers of two kinds, whose numbers differ.
//
// A pure function; used once per model, on the loading thread.
#pragma once

#include "worker/load/model_config.h"
#include "worker/model/gguf_config.h"

namespace quire::model {

// Fails, by key, where layers of one kind differ.
void ReadGemma4Gguf(GgufReader& reader, load::ModelConfig& config);

}  // namespace quire::model
