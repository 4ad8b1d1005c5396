// Runs sequences through a model that is cut among ranks, each a thread with a backend of its own.
//
// Owned by one test. What all ranks must agree on is checked in every step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/collectives/shared_group.h"
#include "tests/golden/driver.h"
#include "worker/model/model.h"

namespace quire::golden {

class RankDriver {
 public:
  // Null with why in `error` when the model cannot be cut so. `sequences` have pages for
  // `max_positions` each.
  struct Options {
    int ranks = 1;
    int threads = 1;  // of each rank
    int sequences = 1;
    int max_positions = 128;
    // Makes a rank's device; empty: a CPU's.
    std::function<std::unique_ptr<kernels::Backend>()> make_backend = nullptr;
    bool whole_experts = false;
    int max_loras = 0;
    int max_lora_rank = 0;
    // Puts adapters into a rank's slots once it is loaded.
    std::function<void(const kernels::StepProgram& steps, kernels::LoadedProgram& program)>
        install = nullptr;
  };
  static std::unique_ptr<RankDriver> Make(model::Model& model, const Options& options,
                                          std::string& error);

  // The next tokens of a sequence; rows are returned for all of them.
  struct Piece {
    int sequence = 0;
    int begin = 0;
    std::span<const int32_t> tokens;
    int adapter = -1;
  };
  // In the order of pieces and tokens; logits of all ranks one after another. Every token is
  // sampled as `how` says, greedily without it.
  std::vector<Row> Step(const std::vector<Piece>& pieces, const kernels::SampleRow* how = nullptr);
  // The outputs of the first rank in the last step.
  const std::vector<kernels::SampleOutput>& outputs() const { return outputs_.front(); }

  // Aborts the group; then what a step of the first sequence's tokens ends with, on all ranks.
  void Abort() { group_->Abort(); }
  kernels::CommFailure StepOfFailedGroup(std::span<const int32_t> tokens);

  const kernels::LoadedProgram& program(int rank) const { return *ranks_[rank].program; }

 private:
  struct OneRank {
    std::unique_ptr<kernels::Communicator> communicator;
    std::unique_ptr<kernels::Backend> backend;
    kernels::StepProgram steps;
    std::unique_ptr<kernels::LoadedProgram> program;
  };

  bool Load(const Options& options, std::string& error);
  std::vector<Row> Run(const std::vector<Piece>& pieces, const kernels::SampleRow& how);
  void RunAll(const kernels::StepBatch& batch, std::vector<std::vector<float>>& logits);

  std::unique_ptr<kernels::SharedGroup> group_;
  std::vector<OneRank> ranks_;
  std::vector<std::vector<std::vector<int32_t>>> tables_;    // [sequence][group][block]
  std::vector<std::vector<kernels::SampleOutput>> outputs_;  // by rank
};

}  // namespace quire::golden
