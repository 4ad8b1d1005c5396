// Small random models and a page table to run them through a backend, with every unwritten byte
// NaN.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::test {

// What a test model is made of; the rest follows from it.
struct ModelShape {
  DType type = DType::kF32;
  DType second_type = DType::kF32;  // of v and of the down projection
  int layers = 2;
  int hidden = 256;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int inner = 512;
  int vocabulary = 90;
  std::vector<int> windows;  // by layer; empty: all full
  bool layer_norm =
      false;  // LayerNorm, biases, learned positions, ReLU (as in OPT); else gated and RoPE
  bool head_norm = false;
  HeadNorm norm_of_heads = HeadNorm::kRms;
  bool value_norm = false;
  QueryGrowth growth;
  int experts = 0;  // in place of the second block's mlp; 0: none
  RoutingRule rule;
  bool selection_bias = false;
  bool plain_experts = false;  // without a gate: squared ReLU
  bool expert_biases = false;  // gpt-oss: biases of router and experts, and its gate
  bool sinks = false;
  float block_scale = 1.0f;  // of what a block adds to the stream
  float logits_softcap = 0.0f;
  float attention_softcap = 0.0f;
};

StepProgram MakeProgram(const ModelShape& shape, WeightStore& store);

// One sequence's pages in a scrambled pool, which starts as NaN.
class PagedRunner {
 public:
  struct Options {
    CpuOptions cpu;
    int block_size = 16;
    KvType kv_type = KvType::kF32;
    int sequences = 1;
    int max_context = 1024;
    int max_tokens = 1024;
    int max_loras = 0;
    int max_lora_rank = 0;
    StepTimes* times = nullptr;
  };
  PagedRunner(const StepProgram& program, const Options& options);

  // A piece of a sequence to run in one step; logits are wanted for each of its tokens.
  struct Piece {
    int sequence = 0;
    int begin = 0;
    std::vector<int32_t> tokens;
    int adapter = -1;
  };
  // Logits of all tokens of all pieces, in order.
  std::vector<std::vector<float>> Step(const std::vector<Piece>& pieces);

  // Marks blocks wholly before `position` of sliding kinds as gone, and poisons their pages.
  void DropBehindWindow(int sequence, int position);

  // The states of blocks first … last have one place from now on.
  void MergeStates(int sequence, int first, int last);
  // The sequence reads the state at the end of a block of another one, and that one's keys before.
  void ContinueAfter(int sequence, int other, int block);

  LoadedProgram& program() { return *loaded_; }
  Backend& backend() { return *backend_; }

 private:
  Options options_;
  KvLayout layout_;
  int vocabulary_ = 0;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LoadedProgram> loaded_;
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // [sequence][group][block]
};

using Logits = std::vector<std::vector<float>>;

// Logits of sequence 0's tokens from `begin` on, `chunk` in each step beside all of sequence 1.
Logits RunInChunks(PagedRunner& runner, const std::vector<int32_t>& tokens, int chunk,
                   const std::vector<int32_t>& others, int begin = 0);

// Largest |a − b| over the largest |b| of its row; huge where a is no number.
double WorstError(const Logits& got, const std::vector<std::vector<double>>& wanted);

std::vector<int32_t> RandomTokens(int count, int vocabulary, uint32_t seed);

// The instruction sets of the float32 class that this host can run, the reference first.
std::vector<std::string> AvailableIsas();

}  // namespace quire::kernels::test
