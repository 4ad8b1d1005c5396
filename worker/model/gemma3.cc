// Gemma 3 (text): scaled embeddings, norms on both sides of every block, q and k norms, and sliding
// layers with a rope of their own between full ones.
#include <cmath>

#include "worker/model/decoder_blocks.h"
#include "worker/model/model_table.h"

namespace quire::model {

void WriteGemma3(ProgramBuilder& builder) {
  const load::ModelConfig& config = builder.config();
  const DecoderBuffers buffers = MakeBuffers(builder, /*with_branch=*/true);
  const float scale = std::sqrt(static_cast<float>(config.hidden_size));
  const kernels::WeightId embedding = AddEmbedding(builder, buffers, scale);
  const int full_rope = builder.AddRope(config.rope);
  const int sliding_rope = builder.AddRope(config.sliding_rope);
  for (int layer = 0; layer < config.layers; ++layer) {
    const bool slides = config.layer_windows[static_cast<size_t>(layer)] > 0;
    AddRmsNorm(builder, {Part::kAttentionNorm, layer, buffers.hidden, buffers.normed});
    AddAttention(builder, buffers,
                 {layer, slides ? sliding_rope : full_rope, /*head_norms=*/true, buffers.branch,
                  /*accumulate=*/false});
    AddRmsNorm(builder, {Part::kPostAttentionNorm, layer, buffers.branch, buffers.hidden,
                         /*accumulate=*/true});
    AddRmsNorm(builder, {Part::kMlpNorm, layer, buffers.hidden, buffers.normed});
    AddGatedMlp(builder, buffers, layer, buffers.branch, /*accumulate=*/false);
    AddRmsNorm(builder,
               {Part::kPostMlpNorm, layer, buffers.branch, buffers.hidden, /*accumulate=*/true});
  }
  AddHead(builder, buffers, embedding);
}

}  // namespace quire::model
