// What Granite's families share.
#pragma once

#include "worker/model/gguf_config.h"
#include "worker/model/json_config.h"

namespace quire::model {

// Of embeddings, scores, what blocks add, and logits.
void ReadGraniteScales(JsonReader& reader, load::ModelConfig& config);
void ReadGraniteScales(GgufReader& reader, load::ModelConfig& config);

// What experts return is scaled with their weights.
void ScaleExperts(load::ModelConfig& config);

}  // namespace quire::model
