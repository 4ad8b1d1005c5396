// Qwen3: Llama with an RMS norm on each q and k head before the rotation, and no biases.
#include "worker/model/decoder_blocks.h"
#include "worker/model/model_table.h"

namespace quire::model {

void WriteQwen3(ProgramBuilder& builder) {
  const load::ModelConfig& config = builder.config();
  const DecoderBuffers buffers = MakeBuffers(builder, /*with_branch=*/false);
  const kernels::WeightId embedding = AddEmbedding(builder, buffers, 1.0f);
  const int rope = builder.AddRope(config.rope);
  for (int layer = 0; layer < config.layers; ++layer) {
    AddPreNormLayer(builder, buffers, layer, rope, /*head_norms=*/true);
  }
  AddHead(builder, buffers, embedding);
}

}  // namespace quire::model
