// A step program lowered for the CPU: packed weights, page pool, workspace, and the loop over its
// ops.
//
// Owned by the runner; called from the engine's thread, which shares every job with the backend's
// pool. Invariants:
// 1. Weights and pages are written by Load and by ops only; a step allocates nothing.
// 2. The bits of a result do not depend on the number of threads, rows or tasks.
// 3. With several ranks every rank meets the same collectives in the same order: they follow from
//    the program and the batch alone. After a failed one nothing more is run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/head_screen.h"
#include "kernels/cpu/job_group.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/moe_workspace.h"
#include "kernels/cpu/packed_adapter.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/program_needs.h"
#include "kernels/cpu/rank_sampling.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sampling/sampler.h"

namespace quire::kernels::cpu {

class CpuProgram final : public LoadedProgram {
 public:
  // `screen`: the int8 class's kernels, where the head may be screened; null: it is not.
  CpuProgram(const StepProgram& program, const ProgramOptions& options, const KernelTable& kernels,
             const KernelTable* screen, ThreadPool& pool);

  void Run(const StepBatch& batch) override { Execute(batch, {}); }
  void RunWithLogits(const StepBatch& batch, std::span<float> logits) override {
    Execute(batch, logits);
  }
  FeatureRows Features() const override;
  FeatureRows Embed(std::span<const int32_t> tokens) override;
  std::shared_ptr<const AdapterWeights> PackAdapter(const Adapter& adapter) const override;
  void SetAdapter(int slot, std::shared_ptr<const AdapterWeights> adapter) override;
  void PoisonPage(int32_t page) override;
  int64_t WeightBytes() const override { return weight_bytes_; }
  int64_t WorkspaceBytes() const override { return workspace_bytes_; }
  int64_t PoolBytes() const override { return pages_.size(); }

  // For tests: fills all workspace with NaN.
  void PoisonWorkspace();
  // For tests: rows that the screen of the head has decided so far.
  int64_t ScreenedRows() const { return screened_rows_; }

  // `screened`: the head may be screened.
  static int64_t EstimateWeights(const StepProgram& program, bool screened);
  // `kernels` say how activations are rounded.
  static int64_t EstimateWorkspace(const StepProgram& program, const ProgramOptions& options,
                                   int threads, const KernelTable& kernels, bool screened);
  static int64_t EstimateShared(const StepProgram& program, const ProgramOptions& options);

 private:
  // What one step runs with; set by Execute.
  struct Step {
    const StepBatch* batch = nullptr;
    std::span<float> logits;
    int tokens = 0;
    int first_sample = 0;  // of the current slice
    int samples = 0;       // in it
    int screened = 0;      // of them: the first ones in sample_order_
    int chosen = 0;        // of those: the first ones, which have their token
    bool failed = false;   // a collective did
  };

  void LoadWeights(const StepProgram& program, const ProgramOptions& options);
  void PackWeight(const Weight& weight, PackedMatrix& matrix, const ProgramOptions& options,
                  int64_t total_bytes, HeadScreen* screen);
  void ReserveWorkspace(const StepProgram& program, const ProgramOptions& options);

  void Execute(const StepBatch& batch, std::span<float> logits);
  void CopyPages();
  void ComputeAngles();

  void RunOp(const EmbedOp& op);
  void RunOp(const NormOp& op);
  void RunOp(const LinearOp& op);
  void RunOp(const SliceGateOp& op);
  void RunOp(const HeadSquaresOp& op);
  void RunOp(const RopeAppendOp& op);
  void RunOp(const AttentionOp& op);
  void RunOp(const GatherRowsOp& op);
  void RunOp(const LogitsOp& op);
  void RunOp(const SampleOp& op);
  void RunOp(const AllReduceOp& op);
  void RunOp(const MoeOp& op);
  void RunOp(const LatentAppendOp& op);
  void RunOp(const HeadLinearOp& op);
  void RunOp(const LatentAttentionOp& op);
  void RunOp(const CausalConvOp& op);
  void RunOp(const RecurrenceOp& op);
  void RunOp(const GatedNormOp& op);
  void RunOp(const GateOp& op);
  void RunOp(const LoraOp& op);
  void RunOp(const ActivateOp& op);
  void RunOp(const CopyOp& op);
  void RunOp(const InputOp& op);

  void RunLinear(LinearJob& job);
  void QuantiseRows(const KernelTable& kernels, LinearJob& job);
  void RoundRows(LinearJob& job);
  void OrderInputs(LinearJob& job);
  void OrderSamples();
  size_t SampleAt(int row) const {
    return static_cast<size_t>(step_.first_sample + sample_order_[static_cast<size_t>(row)]);
  }
  // `inputs`: job.x, to be put in order.
  int RunScreened(LinearJob job, float* inputs);
  int MoveFoundToFront(const LinearJob& job, float* inputs);
  void Route(const MoeOp& op, int begin, int tokens);
  void RunMoeSlice(const MoeOp& op, int begin, int tokens);
  void RunAttention(const AttentionJob& job);
  void FindAdapterRuns();
  void RunLoraSlice(const LoraOp& op, int begin, int end);
  // Products added since Clear, shared out together. A job's rows are prepared in its `space`.
  void AddToGroup(LinearJob job, float* space);
  void AddToGroupOfSameRows(LinearJob job);  // as the job that was added last
  void RunGroup();
  void RunExperts(const MoeOp& op, const LinearJob& job, WeightId MoeOp::Expert::*matrix,
                  WeightId MoeOp::Expert::*bias);
  LayerPages PagesOf(int layer) const;
  StatePages PagesOfState(const StatePart& part) const;

  float* BufferData(BufferId id) { return buffer_data_[id]; }
  int64_t Stride(BufferId id) const { return BufferStride(buffer_infos_[id].width); }
  int RowCount(BufferId id) const {
    return buffer_infos_[id].sampled_rows_only ? step_.samples : step_.tokens;
  }
  const float* Vector(WeightId id) const { return id == kNoId ? nullptr : vectors_[id].data(); }
  float* Scratch(int thread) {
    return reinterpret_cast<float*>(scratch_.data()) + thread * scratch_floats_;
  }
  // Runs task(begin, end, thread) over [0, count) in about eight pieces per thread of at least
  // `least`.
  template <class Task>
  void Share(int count, int least, const Task& task);
  // The same over the step's tokens: task(row, begin, end) for parts of its rows.
  template <class Task>
  void ShareRows(int least, const Task& task);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  KvLayout kv_;
  std::vector<Op> ops_;
  std::vector<Rope> ropes_;
  std::vector<StateShape> states_;
  std::vector<Buffer> buffer_infos_;
  BufferId features_ = kNoId;
  int vocab_size_ = 0;
  VocabularySlice vocabulary_;            // this rank's
  Communicator* communicator_ = nullptr;  // absent with one rank
  int max_samples_ = 0;                   // logits held at once

  std::vector<PackedMatrix> matrices_;       // by weight; empty where the weight is a vector
  std::vector<std::vector<float>> vectors_;  // by weight; empty where it is a matrix
  int64_t weight_bytes_ = 0;
  int64_t packed_source_bytes_ = 0;

  Pages pages_;
  std::vector<Pages> buffers_;         // empty where the ranks share the buffer
  std::vector<float*> buffer_data_;    // by buffer
  std::vector<int64_t> buffer_bytes_;  // by buffer
  Pages tiles_;                        // x in register tiles, of the current product
  Pages int8_rows_;                    // x quantised, of the current product
  Pages rounded_rows_;                 // x rounded, of the current product
  Pages ordered_rows_;                 // x in the order of a weight's columns
  std::vector<RoundedInput> rounded_inputs_;
  std::vector<Pages> angles_;  // by rope: [tokens][cos | sin]
  Pages scratch_;              // by thread
  int64_t scratch_floats_ = 0;
  int64_t workspace_bytes_ = 0;
  std::vector<sampling::Sampler> samplers_;  // by thread; none with several ranks
  std::unique_ptr<RankSampling> rank_sampling_;
  const KernelTable* screen_kernels_;
  HeadScreen screen_;
  std::vector<ScreenScratch> screen_scratch_;  // by thread
  std::vector<uint8_t> screen_found_;          // by row
  std::vector<int> sample_order_;              // of the current slice: rows of it
  int screen_pause_ = 0;                       // slices
  int64_t screened_rows_ = 0;
  std::vector<AttentionTask> attention_tasks_;
  MoeWorkspace moe_;
  JobGroup group_;
  std::vector<std::shared_ptr<const PackedAdapter>> adapters_;  // by slot
  std::vector<AdapterRun> adapter_runs_;
  int64_t lora_rank_stride_ = 0;
  Pages lora_inner_;
  Step step_;
  StepTimes* times_ = nullptr;
};

}  // namespace quire::kernels::cpu
