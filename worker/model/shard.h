// The part of a model that one tensor-parallel rank computes, and whether the model can be divided
// in this way.
//
// Values and pure functions; used while a program is built. Invariants:
// 1. The parts of all ranks are disjoint and together the whole, except for heads of keys and
//    values where there are fewer of them than ranks: several ranks hold each of these.
// 2. Every part begins and ends at a block of quantised weights.
// 3. The first rank's parts are the largest: a memory plan for it fits all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/load/model_config.h"
#include "worker/load/model_files.h"
#include "worker/model/tensor_names.h"

namespace quire::model {

struct Rank {
  int rank = 0;
  int ranks = 1;
  bool adapters = false;       // its products have ops of adapters behind them
  bool whole_experts = false;  // ranks divide the experts of a layer, not the width of each
  // Ascending: the program shows the residual stream that enters these layers, one beside the other
  // (StepProgram::features); the number of layers stands for what leaves the last one.
  std::vector<int> features = {};
};

// Rows or columns of a tensor.
struct Range {
  int64_t begin = 0;
  int64_t count = -1;  // −1: all
};

struct Shard {
  int rank = 0;
  int ranks = 1;
  int heads = 0;          // of queries, of this rank
  int kv_heads = 0;       // of keys and values, of this rank
  Range queries;          // rows of q
  Range attended;         // columns of the output projection
  Range keys;             // rows of k and v
  int full_kv_heads = 0;  // Gemma 4: the same of layers with full attention
  Range full_queries;
  Range full_keys;
  Range wide_inner;    // and of an mlp of twice the width
  Range inner;         // rows of gate and up, columns of down
  Range expert_inner;  // the same of every expert
  Range experts;       // of a layer's mixture
  Range shared_inner;  // and of a layer's shared one
  Range vocabulary;    // rows of the embedding and of the head
  // Of recurrent layers: channels of a short convolution; heads of the gated delta rule.
  Range channels;
  Range key_heads;
  Range value_heads;
  std::vector<int> features;  // as in Rank

  bool first() const { return rank == 0; }
  bool HasWholeExperts(int count) const { return experts.count < count; }
};

// Needs: query heads that divide among the ranks, and heads of keys and values that divide among
// them or the ranks among those; at least one block of each inner width and one token id for each
// rank. INVALID_ARGUMENT in one line with what was found, what is needed, and the counts that work.
absl::StatusOr<Shard> CutModel(const TensorNaming& naming, const load::ModelConfig& config,
                               const load::ModelFiles& files, const Rank& rank);

}  // namespace quire::model
