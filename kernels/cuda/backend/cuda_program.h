// A step program lowered for a CUDA device: weights, page pool and workspace in its memory, and the
// launches of a step.
//
// Owned by the runner, on the rank's one thread. Invariants:
// 1. Everything is allocated by Load; a step allocates nothing on the device.
// 2. The bits of a row's results do not depend on the other rows, on chunks, on slices of samples,
//    on padding, on whether the step is a replayed graph, nor on the steps in flight.
// 3. The host computes no op: in a step it lays out indices, and with several ranks without NCCL it
//    carries sums and samplers' messages between them.
// 4. The first error of the device sticks: later steps do nothing, and failure() names it.
// 5. Steps run in one stream, one after another. The host waits for none of them before Collect,
//    except for lists that do not fit at once and for logits that a test reads; over host memory
//    ranks wait in every collective.
// 6. Ranks run the same steps, captures and first runs in the same order.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/backend/adapter_places.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "kernels/cuda/backend/decode_graphs.h"
#include "kernels/cuda/backend/device_heap.h"
#include "kernels/cuda/backend/device_weights.h"
#include "kernels/cuda/backend/lowering.h"
#include "kernels/cuda/backend/moe_places.h"
#include "kernels/cuda/backend/page_pool.h"
#include "kernels/cuda/backend/products.h"
#include "kernels/cuda/backend/rank_exchange.h"
#include "kernels/cuda/backend/step_flight.h"
#include "kernels/cuda/backend/step_inputs.h"
#include "kernels/cuda/backend/workspace.h"
#include "kernels/cuda/cublaslt/fast_products.h"
#include "kernels/cuda/ops/sample/sample_slice.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

inline constexpr int kStepsInFlight = 2;

class CudaProgram final : public LoadedProgram {
 public:
  CudaProgram(const StepProgram& program, DeviceProgram lowered, const ProgramOptions& options,
              runtime::Runtime& runtime, const CudaOptions& device);
  ~CudaProgram() override;

  void Run(const StepBatch& batch) override { RunWithLogits(batch, {}); }
  void RunWithLogits(const StepBatch& batch, std::span<float> logits) override;
  int MaxInFlight() const override { return Queues() ? kStepsInFlight : 1; }
  void Launch(const StepBatch& batch) override { Begin(batch, {}); }
  bool Done() override;
  void Collect(std::span<SampleOutput> outputs) override;
  std::shared_ptr<const AdapterWeights> PackAdapter(const Adapter& adapter) const override;
  void SetAdapter(int slot, std::shared_ptr<const AdapterWeights> adapter) override;
  void PoisonPage(int32_t page) override;
  int64_t WeightBytes() const override { return weight_bytes_; }
  int64_t WorkspaceBytes() const override { return workspace_bytes_; }
  int64_t PoolBytes() const override { return pool_.page_count() * kv_.page_bytes; }
  int64_t PageCount() const override { return pool_.page_count(); }
  DeviceMemoryUse DeviceMemory() override;
  std::string Failure() const override { return error_; }

 private:
  // --- start: cuda_program.cc
  void Reserve(const Workspace& workspace, const ProgramOptions& options);
  void ReserveFlights(const Workspace& workspace, const ProgramOptions& options);
  void ReserveExchange(const Workspace& workspace, const nccl::Library* library);
  void ReserveFastProducts(const cublaslt::Library& library);
  void ReserveHeadTables();
  // Times each shape of product, with the rows of every size of step.
  void TuneProducts(const ProgramOptions& options);
  void LoadAngles(const std::vector<Rope>& ropes, const Workspace& workspace);
  void PrepareSteps(const ProgramOptions& options, const StartOptions& start);
  // Reports that the start makes progress: a waiting supervisor would take silence for a hang.
  void TellAlive(const ProgramOptions& options) const;
  void WarmUp(const StepShape& shape);
  void WarmUpLargestSum(int tokens);
  void WarmUpSamples();
  void WarmUpExperts();
  void WarmUpAdapters();
  void Capture(const StepShape& shape);
  // All of them, and the capture under way. Call it before the ranks' group ends: NCCL waits
  // forever for the last graph that holds one of its collectives.
  void DropGraphs();

  // --- a step: cuda_program_steps.cc
  void Begin(const StepBatch& batch, std::span<float> logits);
  void RunBatch();
  void LayOut(const StepBatch& batch, const StepShape& shape);
  void BeginTokens();
  void RunSteps(size_t begin, size_t end);
  void CopyPages(std::span<const PageCopy> copies);
  // Samples `count` rows from `first` of the slice on.
  void Sample(const SampleOp& op, int first, int count);
  void SampleAlone(std::span<const SampleRow> rows, size_t bytes, SampleParams params);
  void SampleAmongRanks(std::span<const SampleRow> rows, size_t bytes, SampleSliceParams params);
  size_t PackedBytes(std::span<const SampleRow> rows) const;
  void TellLogits(const LogitsOp& op);

  // --- its launches: cuda_program_run.cc
  template <class Params>
  Params NormParams(const NormStep& step) const;
  GemmParams ProductParams(BufferId in, WeightId bias) const;
  void Do(const EmbedStep& step);
  void Do(const NormStep& step);
  void Do(const RoundStep& step);
  void Do(const ProductStep& step);
  void Do(const ActivationStep& step);
  void Do(const RopeStep& step);
  void Do(const AttentionOp& op);
  void Do(const GatherStep& step);
  void MultiplyHead(const LogitsOp& op);  // this rank's logits
  void Do(const LogitsOp& op);
  void Do(const SampleOp& op);
  void Do(const SumStep& step);
  void Do(const HeadSquaresOp& op);
  void Do(const SliceGateStep& step);
  void Do(const MoeStep& step);  // cuda_program_moe.cc
  void RunMixture(const MoeOp& op, int begin, int tokens, int tile_rows);
  void Do(const LoraStep& step);          // adapter_steps.cc
  void Do(const RecurrentStep& step);     // recurrent_steps.cc
  void Do(const LatentAppendStep& step);  // latent_steps.cc
  void Do(const HeadLinearStep& step);
  void Do(const LatentAttentionStep& step);

  // Keeps the first error.
  void Check(const runtime::Error& error) {
    if (error_.empty() && !error.empty()) error_ = error;
  }
  void Finish();  // waits for everything that was launched
  // Whether the host waits for no peer within a step.
  bool Queues() const { return exchange_ == nullptr || exchange_->queues(); }
  template <class Params>
  void SetPages(int layer, Params& params) const;
  int RowsOf(BufferId id) const {
    return lowered_.buffers[id].sampled_rows_only ? step_.samples : step_.shape.tokens;
  }
  uint16_t* Rows(BufferId id) const { return reinterpret_cast<uint16_t*>(buffers_[id]); }
  float* Floats(BufferId id) const { return reinterpret_cast<float*>(buffers_[id]); }
  template <class T>
  const T* Input(int64_t place) const {
    return reinterpret_cast<const T*>(inputs_ + place);
  }

  runtime::Runtime& runtime_;
  DeviceHeap heap_;
  const DeviceProgram lowered_;
  const StepRules rules_;
  const KvLayout kv_;
  const int vocab_size_;
  const VocabularySlice vocabulary_;  // this rank's
  const int ranks_;
  const int max_samples_;
  Communicator* communicator_ = nullptr;  // absent with one rank

  runtime::StreamId stream_{};
  DeviceWeights weights_;
  std::vector<std::byte*> buffers_;  // by device buffer
  struct Angles {
    float* table = nullptr;  // [position][cosines | sines]
    int rotary_dim = 0;
  };
  std::vector<Angles> angles_;  // by rope
  PagePool pool_;
  int32_t* inputs_ = nullptr;
  int64_t input_words_ = 0;
  int32_t* tables_ = nullptr;        // [groups][slots][blocks] pages
  int32_t* last_samples_ = nullptr;  // by slot
  SampleMemory samples_;
  std::array<StepFlight, kStepsInFlight> flights_;
  int first_flight_ = 0;  // the oldest in flight
  int in_flight_ = 0;
  DecodeGraphs graphs_;
  bool capturing_ = false;
  std::unique_ptr<RankExchange> exchange_;                 // with several ranks
  std::unique_ptr<cublaslt::FastProducts> fast_products_;  // absent where bits must not vary
  float* product_workspace_ = nullptr;
  uint32_t* product_counters_ = nullptr;
  float* attention_workspace_ = nullptr;
  uint32_t* attention_counters_ = nullptr;
  MoeMemory moe_;
  AdapterSlots adapters_;
  std::vector<const uint16_t**> head_tables_;  // by HeadLinearStep::table
  int64_t weight_bytes_ = 0;
  int64_t workspace_bytes_ = 0;
  RunningStep step_;
  runtime::Error error_;
};

}  // namespace quire::kernels::cuda
