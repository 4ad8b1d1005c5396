// Writes step programs: finds tensors, checks their shapes, and appends the blocks that families
// share.
//
// Lives while one program is built, on the loading thread. The first error sticks: later calls do
// nothing, and Finish returns it, so that a family file reads as a plain list.
// 1. A weight that is in the program has exactly the shape that the configuration demands, or is
//    the part of such a one that the shard names.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/step_program.h"
#include "worker/load/model_config.h"
#include "worker/load/model_files.h"
#include "worker/model/shard.h"
#include "worker/model/tensor_names.h"
#include "worker/model/used_tensors.h"
#include "worker/model/weight_memory.h"

namespace quire::model {

class ProgramBuilder {
 public:
  // Everything except naming and shard must outlive the program.
  ProgramBuilder(const TensorNaming& naming, const load::ModelConfig& config,
                 const load::ModelFiles& files, WeightMemory& memory, const Shard& shard);

  const load::ModelConfig& config() const { return config_; }
  const Shard& shard() const { return shard_; }
  bool is_gguf() const { return files_.is_gguf(); }
  // From now on products have ops of adapters behind them. `pairs`: whether Hugging Face keeps rows
  // of q and k in neighbouring pairs.
  void ServeAdapters(bool pairs) { adapter_pairs_ = pairs; }

  // Rows of a part that has `rows` of them, stacked with others into one matrix.
  struct Stack {
    Part part;
    int64_t rows;
    Range kept = {};
    bool ordered = false;  // its columns are in the order of their groups
  };
  // The columns in `kept` of the parts' `cols` columns.
  kernels::WeightId Matrix(std::initializer_list<Stack> stacks, int64_t cols,
                           const Place& place = {}, Range kept = {});
  // The biases of an expert's stacked parts: [1, sum].
  kernels::WeightId ExpertBias(std::initializer_list<Stack> stacks, const Place& place);
  // A router's `rows` of the width of the layers, in floats as the file has them: its choice is
  // discontinuous, so no requested type rounds it.
  kernels::WeightId Router(Part part, int64_t rows, int layer);
  // The number that each expert's score has added for the choice, in the same way.
  kernels::WeightId SelectionBias(int64_t experts, int layer);
  // What a head of latent attention multiplies queries and sums of latents by: [rank, elements of a
  // query that do not turn], [elements of its result, rank].
  kernels::WeightId HeadKeys(const Place& head);
  kernels::WeightId HeadValues(const Place& head);
  // A bias or norm of the kept rows of the parts together: [1, sum].
  kernels::WeightId Vector(std::initializer_list<Stack> stacks, std::string_view suffix,
                           int layer = kNoLayer);
  kernels::WeightId Ones(int64_t length);
  float Scalar(Part part, int layer);  // the one number of a tensor
  void Ignore(Part part, int layer);   // a tensor that files may hold and that nothing reads

  // Rows of a part that has `rows` of them, out of order or from several tensors: stacked as they
  // are listed.
  kernels::WeightId Runs(const std::vector<Stack>& runs, int64_t cols, const Place& place);
  // The weight of a causal convolution over the kept channels of `channels`: [taps · kept], a tap's
  // channels beside each other.
  kernels::WeightId Convolution(const std::vector<Range>& kept, int64_t channels, int layer);
  // How fast the states of the kept heads decay, −e^A.
  kernels::WeightId Decay(int64_t heads, const Range& kept, int layer);
  // The next recurrent layer.
  int AddState(const kernels::StateShape& state) {
    program_.states.push_back(state);
    return static_cast<int>(program_.states.size()) - 1;
  }

  kernels::BufferId Buffer(std::string_view name, int64_t width, bool sampled_rows_only = false);
  // The buffer of that name, made at the first call.
  kernels::BufferId BufferOnce(std::string_view name, int64_t width);
  void Show(kernels::BufferId features) { program_.features = features; }
  void ReadInputs(int64_t width) { program_.input_width = static_cast<int>(width); }
  // Of the configuration's elements of a head, or of `rotary_dim`.
  int AddRope(const load::RopeConfig& rope, int rotary_dim = 0);

  template <typename Op>
  void Add(Op op) {
    program_.ops.emplace_back(std::move(op));
  }
  void Add(kernels::LinearOp op);

  // The bias of a product that is cut along K; `there` states whether the model has one.
  struct PartialBias {
    Part part;
    int layer = kNoLayer;
    bool there = false;
  };
  // A product whose weight is this rank's columns: an all_reduce adds the parts of the others. The
  // first rank alone adds what exists once: the bias and the previous content of `out`.
  void AddPartialLinear(kernels::LinearOp op, const PartialBias& bias);
  // Sums a buffer over the ranks, if there are several.
  void AddSum(kernels::BufferId buffer) {
    if (shard_.ranks > 1) Add(kernels::AllReduceOp{buffer});
  }

  absl::StatusOr<kernels::StepProgram> Finish();

 private:
  // The modules whose rows a matrix has, and their columns there.
  struct Origin {
    std::vector<Stack> stacks;
    Place place;
    int64_t cols;
    Range kept;
  };
  void Remember(kernels::WeightId id, Origin origin);
  void AddRuns(const Stack& stack, kernels::LoraTarget& target) const;
  std::optional<kernels::LoraOp> LoraOf(const kernels::LinearOp& op);

  // A tensor of floats in the file's type, whatever type is requested.
  kernels::WeightId Unconverted(Part part, int64_t rows, int64_t cols, int layer);
  bool IsVectorInTwo(const load::Tensor& tensor, Part part, int64_t length) const;
  // Null, with the error kept, when it is missing or has another shape.
  const load::Tensor* Find(Part part, std::string_view suffix, const Place& place,
                           std::vector<int64_t> shape);
  // The part's weight where the checkpoint quantises it; nothing where not, or after an error.
  std::optional<load::QuantisedMatrix> FindQuantised(Part part, const Place& place, int64_t rows,
                                                     int64_t cols);
  kernels::WeightId Transposed(const Stack& stack, int64_t cols, int layer);  // rows as columns
  // How many matrices of the part one tensor of a GGUF file holds.
  int64_t StackedCount(Part part) const {
    return part == Part::kHeadKeys || part == Part::kHeadValues ? config_.heads
                                                                : config_.experts.count;
  }
  // Adds the rows of a part to a weight: those of its tensor, or an expert's of the tensor of all.
  void AddRows(const Stack& stack, int64_t cols, const Place& place, Range kept,
               kernels::Weight& weight);
  struct Kept {
    Range rows;
    Range cols;
  };
  // The part of a tensor of that shape that is kept.
  kernels::WeightSource Source(const load::Tensor& tensor, int64_t rows, int64_t cols,
                               const Kept& kept);
  // A copy whose row i is row from(i) of the source.
  template <typename RowFrom>
  kernels::WeightSource Copy(const kernels::WeightSource& source, const RowFrom& from);
  // An expert's rows in the tensor of all, [experts, rows of all, cols]; false: there is none.
  bool AddFused(const Stack& stack, int64_t cols, const Place& place, Range kept,
                kernels::Weight& weight);
  // The rows of a stack where the checkpoint quantises them. False: it does not.
  bool AddQuantised(const Stack& stack, int64_t cols, const Place& place, Range kept,
                    kernels::Weight& weight);
  // Whether columns may be in the order of their groups: the same one in all stacks.
  bool ShareOrder(const std::vector<Stack>& stacks, int64_t cols, const Place& place, Range kept);
  kernels::WeightId FloatVector(std::string_view name, const std::vector<float>& values);
  // Where several parts are one tensor of such a file: the rows of each within it.
  std::vector<Stack> Unfused(const std::vector<Stack>& of, const Place& place, bool gguf) const;
  // Whether an expert's rows are columns of the tensor of all.
  bool IsInputsFirst(const Place& place) const {
    return naming_.experts_inputs_first && !files_.is_gguf() && place.expert != kNoExpert;
  }
  // Where an expert's row i is in such a tensor, or in a bias: first + step · i, `count` of all.
  struct RowPlaces {
    int64_t first = 0, step = 1, count = 0;
  };
  RowPlaces PlacesOf(const Stack& stack, const Place& place) const;
  // The tensors of blocks and scales in the stead of an expert's rows. False: there are none.
  bool AddMxfp4(const Stack& stack, int64_t cols, const Place& place, Range kept,
                kernels::Weight& weight);
  void AddColumns(const Stack& stack, int64_t cols, const Place& place, Range kept,
                  kernels::Weight& weight);
  bool IsPaired(Part part) const {
    return config_.interleaved_rope && (part == Part::kQuery || part == Part::kKey ||
                                        part == Part::kQueryNorm || part == Part::kKeyNorm);
  }
  int64_t PairedRow(int64_t row) const;  // which row of pairs is this row of halves
  // Rows of q and k in halves, as kernels turn them, where the file keeps them in pairs.
  kernels::WeightSource Halved(Part part, const kernels::WeightSource& source);
  std::vector<float> RopeFactors();
  void Fail(const absl::Status& status) { status_.Update(status); }

  const TensorNaming naming_;
  const load::ModelConfig& config_;
  const load::ModelFiles& files_;
  WeightMemory& memory_;
  const Shard shard_;
  kernels::StepProgram program_;
  UsedTensors used_;
  std::optional<bool> adapter_pairs_;            // none: no adapters
  std::map<kernels::WeightId, Origin> origins_;  // for adapters
  absl::Status status_;
};

}  // namespace quire::model
