// Multi-head latent attention as blocks of a program, and what configurations say of it.
//
// Pure functions over a ProgramBuilder or a reader, on the loading thread.
#pragma once

#include "worker/model/decoder_blocks.h"
#include "worker/model/gguf_config.h"
#include "worker/model/json_config.h"

namespace quire::model {

// out (+)= output projection of latent attention over `normed`.
void AddLatentAttention(ProgramBuilder& builder, const DecoderBuffers& buffers,
                        const AttentionBlock& block);

// Ranks and widths of heads, the rope of the part that turns, the scale of scores.
void ReadLatents(JsonReader& reader, load::ModelConfig& config);
// The same, after the shared metadata.
void ReadLatentsGguf(GgufReader& reader, load::ModelConfig& config);

}  // namespace quire::model
