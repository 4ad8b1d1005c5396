// The look-up in a table that stays quantised: LaunchEmbedding uses it.
#pragma once

#include "kernels/cuda/ops/embedding/embedding.h"

namespace quire::kernels::cuda {

runtime::Error LaunchQuantisedEmbedding(runtime::Runtime& runtime, runtime::StreamId stream,
                                        const EmbeddingParams& params);

}  // namespace quire::kernels::cuda
