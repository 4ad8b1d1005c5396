// How Nemotron-H's configurations are read: what each layer is, Mamba-2, the experts.
//
// Pure functions; used once per model, on the loading thread.
#pragma once

#include "worker/load/model_config.h"
#include "worker/model/gguf_config.h"
#include "worker/model/json_config.h"

namespace quire::model {

// Both fail, by name, for what the file asks for and Quire does not compute.
void ReadNemotronH(JsonReader& reader, load::ModelConfig& config);
void ReadNemotronHGguf(GgufReader& reader, load::ModelConfig& config);

}  // namespace quire::model
