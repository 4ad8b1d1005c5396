// What Granite's families share.
#pragma once

#include "worker/model/json_config.h"

namespace quire::model {

// Of embeddings, scores, what blocks add, and logits.
void ReadGraniteScales(JsonReader& reader, load::ModelConfig& config);

}  // namespace quire::model
