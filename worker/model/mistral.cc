// Mistral: Llama with every layer attending to a sliding window only, where the configuration has
// one.
#include "worker/model/decoder_blocks.h"
#include "worker/model/model_table.h"

namespace quire::model {

void WriteMistral(ProgramBuilder& builder) {
  const load::ModelConfig& config = builder.config();
  const DecoderBuffers buffers = MakeBuffers(builder, /*with_branch=*/false);
  const kernels::WeightId embedding = AddEmbedding(builder, buffers, 1.0f);
  const int rope = builder.AddRope(config.rope);
  for (int layer = 0; layer < config.layers; ++layer) {
    AddPreNormLayer(builder, buffers, layer, rope, /*head_norms=*/false);
  }
  AddHead(builder, buffers, embedding);
}

}  // namespace quire::model
