// The blocks of recurrent layers, and the gate of attention.
//
// Pure functions over a ProgramBuilder; each appends its ops and weights in the order in which they
// run. Ranks share a short convolution by channels, and the gated delta rule by key heads with
// their value heads.
#pragma once

#include "worker/model/program_builder.h"

namespace quire::model {

// The activations within recurrent layers, made once per program.
struct RecurrentBuffers {
  kernels::BufferId in = kernels::kNoId;
  kernels::BufferId convolved = kernels::kNoId;
  kernels::BufferId gates = kernels::kNoId;
  kernels::BufferId factors = kernels::kNoId;
  kernels::BufferId recurred = kernels::kNoId;
  kernels::BufferId z = kernels::kNoId;
};

RecurrentBuffers MakeRecurrentBuffers(ProgramBuilder& builder);

// out += the layer's mixer over `normed`.
void AddRecurrent(ProgramBuilder& builder, const RecurrentBuffers& buffers, int layer,
                  kernels::BufferId normed, kernels::BufferId out);

// The rows of q of gated attention, in its heads' order: each head has its q and then its gate.
std::vector<ProgramBuilder::Stack> QueryRuns(const ProgramBuilder& builder);
// gate = the rows of the gate, likewise, over `normed`.
void AddAttentionGate(ProgramBuilder& builder, int layer, kernels::BufferId normed,
                      kernels::BufferId gate);

}  // namespace quire::model
