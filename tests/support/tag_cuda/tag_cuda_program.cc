// The tag model on an emulated CUDA device: a step program of real ops, run by the CUDA backend
// with its pages, block tables, last samples, graphs and two steps in flight; attention and
// products are those of tag_kernels.cu.
#include <algorithm>
#include <array>
#include <bit>
#include <deque>

#include "common/check.h"
#include "kernels/cuda/backend/cuda_backend.h"
#include "tests/support/tag_cuda/tag_runtime.h"
#include "tests/support/tag_runner.h"

namespace quire::test {
namespace {

using kernels::BufferId;
using kernels::WeightId;

constexpr int kWidth = 8;  // of rows and heads: a multiple of 8 elements
constexpr int kQkv = 3 * kWidth;
constexpr int kStateKeys = 4;
constexpr int kStateValues = 16;
constexpr int kHeadBytes = kStateKeys * kStateValues * 4;

// Of a state that fills a page of its own: keys and values of a token have 64 bytes.
int StateHeads(int block_size) { return std::max(1, 64 * block_size / kHeadBytes); }

uint16_t Bf16OfInteger(int value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

// Token t is the row (t, 0, 0, …), which a product carries into its query.
class TagStepProgram {
 public:
  explicit TagStepProgram(const TagRunnerOptions& options) {
    if (options.communicator != nullptr) {
      program.rank = options.communicator->rank();
      program.ranks = options.communicator->size();
    }
    QUIRE_CHECK_MSG(options.vocab_size <= 256, "a token's number is exact in bfloat16 up to 256");
    program.family = "tag";
    program.vocab_size = options.vocab_size;
    program.hidden_size = kWidth;
    program.max_positions = options.max_model_len;
    program.heads = program.kv_heads = 1;
    program.head_dim = kWidth;
    for (const CacheKindShape& kind : options.cache.kinds) {
      QUIRE_CHECK_MSG(kind.window != 1, "a window of one cannot see the previous tag");
      if (kind.HoldsStates()) {
        program.states.assign(static_cast<size_t>(kind.groups),
                              {.heads = StateHeads(options.cache.block_size),
                               .key_dim = kStateKeys,
                               .value_dim = kStateValues});
        continue;
      }
      program.layer_windows.insert(program.layer_windows.end(), static_cast<size_t>(kind.groups),
                                   kind.window);
    }
    const kernels::VocabularySlice ids = kernels::VocabularyOf(program);
    std::vector<uint16_t> table(static_cast<size_t>(ids.count) * kWidth, 0);
    for (int id = 0; id < ids.count; ++id) {
      table[static_cast<size_t>(id) * kWidth] = Bf16OfInteger(ids.begin + id);
    }
    std::vector<uint16_t> qkv(kQkv * kWidth, 0);
    qkv[0] = Bf16OfInteger(1);
    std::vector<uint16_t> same(kWidth * kWidth, 0);
    for (size_t i = 0; i < kWidth; ++i) same[i * kWidth + i] = Bf16OfInteger(1);
    const WeightId words = AddWeight("table", std::move(table));
    const WeightId to_qkv = AddWeight("qkv", std::move(qkv));
    const WeightId pass = AddWeight("pass", std::move(same));
    const WeightId head =
        AddWeight("head", std::vector<uint16_t>(static_cast<size_t>(ids.count) * kWidth, 0));
    AddOps(words, to_qkv, pass, head);
  }

  kernels::StepProgram program;

 private:
  WeightId AddWeight(const char* name, std::vector<uint16_t> values) {
    const std::vector<uint16_t>& kept = values_.emplace_back(std::move(values));
    kernels::Weight weight;
    weight.name = name;
    weight.rows = static_cast<int64_t>(kept.size()) / kWidth;
    weight.cols = kWidth;
    weight.parts = {{kernels::DType::kBF16, weight.rows, kWidth,
                     reinterpret_cast<const std::byte*>(kept.data())}};
    program.weights.push_back(std::move(weight));
    return static_cast<WeightId>(program.weights.size()) - 1;
  }
  BufferId AddBuffer(const char* name, int width, bool sampled = false) {
    program.buffers.push_back({name, width, sampled});
    return static_cast<BufferId>(program.buffers.size()) - 1;
  }

  void AddOps(WeightId words, WeightId to_qkv, WeightId pass, WeightId head) {
    const BufferId token = AddBuffer("token", kWidth);
    const BufferId qkv = AddBuffer("qkv", kQkv);
    const BufferId seen = AddBuffer("seen", kWidth);
    const BufferId all = AddBuffer("all", kWidth);
    const BufferId wanted = AddBuffer("wanted", kWidth, true);
    const kernels::VocabularySlice ids = kernels::VocabularyOf(program);
    const BufferId logits = AddBuffer("logits", ids.width, true);
    kernels::EmbedOp embed;
    embed.table = words;
    embed.out = token;
    program.ops.emplace_back(embed);
    program.ops.emplace_back(kernels::AllReduceOp{token});  // one rank has the token's row
    for (int group = 0; group < static_cast<int>(program.layer_windows.size()); ++group) {
      kernels::LinearOp project;
      project.weight = to_qkv;
      project.in = token;
      project.out = qkv;
      program.ops.emplace_back(project);
      kernels::RopeAppendOp append;
      append.qkv = qkv;
      append.layer = group;
      append.heads = append.kv_heads = 1;
      append.head_dim = kWidth;
      program.ops.emplace_back(append);
      kernels::AttentionOp attention;
      attention.qkv = qkv;
      attention.out = seen;
      attention.layer = group;
      attention.heads = attention.kv_heads = 1;
      attention.head_dim = kWidth;
      attention.window = program.layer_windows[static_cast<size_t>(group)];
      attention.scale = static_cast<float>(group);  // which tells the kernel
      program.ops.emplace_back(attention);
    }
    if (!program.states.empty()) AddStates(token);
    kernels::LinearOp carry;
    carry.weight = pass;
    carry.in = seen;
    carry.out = all;
    program.ops.emplace_back(carry);
    program.ops.emplace_back(kernels::GatherRowsOp{all, wanted});
    kernels::LogitsOp last;
    last.head = head;
    last.scale = -1.0f - static_cast<float>(ids.begin);  // which tells the kernel
    last.in = wanted;
    last.out = logits;
    program.ops.emplace_back(last);
    program.ops.emplace_back(kernels::SampleOp{logits});
  }

  // Each goes on with what attention has seen of a token, whose number is in its first input.
  void AddStates(BufferId token) {
    const int heads = program.states.front().heads;
    const int width = 2 * kStateKeys + heads * kStateValues;
    std::vector<uint16_t> project(static_cast<size_t>(width) * kWidth, 0);
    project[0] = Bf16OfInteger(1);
    kernels::LinearOp input;
    input.weight = AddWeight("state", std::move(project));
    input.in = token;
    input.out = AddBuffer("mixed", width);
    const WeightId numbers =
        AddWeight("numbers", std::vector<uint16_t>(static_cast<size_t>(heads) * kWidth, 0));
    kernels::Weight& vector = program.weights.back();
    vector.rows = vector.parts[0].rows = 1;
    vector.cols = vector.parts[0].cols = heads;
    kernels::RecurrenceOp recurrence;
    recurrence.kind = kernels::RecurrenceOp::Kind::kMamba2;
    recurrence.key_heads = 1;
    recurrence.value_heads = heads;
    recurrence.key_dim = kStateKeys;
    recurrence.value_dim = kStateValues;
    recurrence.decay = recurrence.bias = numbers;
    recurrence.in = input.out;
    recurrence.gates = AddBuffer("gates", heads);
    recurrence.factors = AddBuffer("factors", 2 * heads);
    recurrence.out = AddBuffer("recurred", heads * kStateValues);
    program.ops.emplace_back(input);
    for (size_t state = 0; state < program.states.size(); ++state) {
      recurrence.layer = static_cast<int>(state);
      program.ops.emplace_back(recurrence);
    }
  }

  std::deque<std::vector<uint16_t>> values_;
};

class CudaTagProgram final : public TagLoaded {
 public:
  explicit CudaTagProgram(const TagRunnerOptions& options)
      : block_size_(options.cache.block_size), model_(options) {
    auto runtime = std::make_unique<TagRuntime>(/*seed=*/7, kernels::cuda::emulate::Checks::kNone);
    runtime_ = runtime.get();
    const size_t slots = static_cast<size_t>(options.max_num_seqs) + 1;
    slots_.resize(slots);
    void* device = nullptr;
    Check(runtime_->Allocate(slots * sizeof(TagSlot), &device));
    runtime_->slots = static_cast<TagSlot*>(device);
    for (TagSlot*& staging : staging_) {
      void* host = nullptr;
      Check(runtime_->AllocateMapped(slots * sizeof(TagSlot), &host, &device));
      staging = static_cast<TagSlot*>(host);
    }
    void* fault = nullptr;
    Check(runtime_->AllocateMapped(sizeof(uint64_t), &fault, &device));
    runtime_->fault = static_cast<uint64_t*>(device);
    fault_ = static_cast<uint64_t*>(fault);
    *fault_ = 0;
    kernels::cuda::CudaOptions own;
    own.architecture = own.description = "emulated";
    own.start = {.graphs = true, .warm_up = false, .margin_bytes = 0};
    backend_ = kernels::cuda::MakeCudaBackend(std::move(runtime), own);
    kernels::ProgramOptions load;
    load.kv = kernels::DealLayers(model_.program.layer_windows,
                                  backend_->PageShape(model_.program, block_size_),
                                  model_.program.states);
    QUIRE_CHECK(load.kv.layers_per_group == 1);
    QUIRE_CHECK(static_cast<int32_t>(load.kv.groups.size()) == options.cache.GroupCount());
    runtime_->first_state_group = load.kv.states.first_group;
    load.page_count = options.cache.page_count;
    load.max_tokens = options.max_step_tokens;
    load.max_rows = load.max_samples = options.max_num_seqs;
    load.max_positions = options.max_model_len;
    load.communicator = options.communicator;
    cuda_ = backend_->Load(model_.program, load);
    Check(cuda_->Failure());
    QUIRE_CHECK(cuda_->PageCount() == options.cache.page_count);
    for (int32_t page = 0; page < options.cache.page_count; ++page) PoisonPage(page);
  }

  void Run(const kernels::StepBatch& batch) override { RunWithLogits(batch, {}); }
  void RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) override {
    Tell(batch);
    cuda_->RunWithLogits(batch, logits);
    CheckFault();
  }
  int MaxInFlight() const override { return cuda_->MaxInFlight(); }
  void Launch(const kernels::StepBatch& batch) override {
    Tell(batch);
    flights_.push_back(batch.sample_rows.size());
    cuda_->Launch(batch);
  }
  bool Done() override { return cuda_->Done(); }
  std::string Failure() const override { return cuda_->Failure(); }
  void BreakDevice() override { runtime_->broken = true; }
  void Collect(std::span<kernels::SampleOutput> outputs) override {
    cuda_->Collect(outputs);
    flights_.pop_front();
    CheckFault();
  }
  void PoisonPage(int32_t page) override { cuda_->PoisonPage(page); }
  int64_t WeightBytes() const override { return cuda_->WeightBytes(); }
  int64_t WorkspaceBytes() const override { return cuda_->WorkspaceBytes(); }
  int64_t PoolBytes() const override { return cuda_->PoolBytes(); }

  void SetRowSalts(std::vector<uint64_t> salts) override { row_salts_ = std::move(salts); }
  void SetNanSeeds(std::set<uint64_t> seeds) override { nan_seeds_ = std::move(seeds); }
  void FailNextRun(std::set<uint64_t>* failed) override { failed_ = failed; }
  int64_t tokens_computed() const override { return tokens_computed_; }
  bool PageWritten(int32_t page) const override {
    Check(runtime_->Synchronize(*runtime_->stream));
    const TagPages& pages = runtime_->pages;
    if (pages.values == nullptr) return false;  // no step has run
    for (int slot = 0; slot < block_size_; ++slot) {
      // An emulated device's memory is the host's.
      const std::byte* at = pages.values + page * pages.page_bytes + slot * pages.token_bytes;
      if (*reinterpret_cast<const uint64_t*>(at) == kNoTag) return false;
    }
    return true;
  }
  void Drop() override {
    while (!flights_.empty()) {
      std::vector<kernels::SampleOutput> nobodys(flights_.front());
      Collect(nobodys);
    }
  }

 private:
  static void Check(const std::string& error) { QUIRE_CHECK_MSG(error.empty(), error.c_str()); }
  // A step that has failed has left anything.
  void CheckFault() const {
    QUIRE_CHECK_MSG(*fault_ == 0 || !cuda_->Failure().empty(), "a key is read that no step wrote");
  }

  // What kernels are to know of the rows of a step goes over before it, in the same stream.
  void Tell(const kernels::StepBatch& batch) {
    for (TagSlot& slot : slots_) slot.fails = 0;
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      const kernels::BatchRow& row = batch.rows[i];
      QUIRE_CHECK(row.slot >= 0);
      slots_[static_cast<size_t>(row.slot)].salt = i < row_salts_.size() ? row_salts_[i] : 0;
      tokens_computed_ += row.token_count;
    }
    row_salts_.clear();
    for (size_t i = 0; i < batch.sample_rows.size(); ++i) {
      const uint64_t seed = batch.sample_rows[i].seed;
      if (failed_ != nullptr) failed_->insert(seed);
      if (failed_ == nullptr && !nan_seeds_.contains(seed)) continue;
      for (const kernels::BatchRow& row : batch.rows) {
        const int32_t token = batch.sampled_tokens[i];
        if (token < row.first_token || token >= row.first_token + row.token_count) continue;
        slots_[static_cast<size_t>(row.slot)].fails = 1;
      }
    }
    failed_ = nullptr;
    // Two are in flight at most: what the one before those has brought over has been read.
    TagSlot* staging = staging_[next_staging_++ % staging_.size()];
    std::copy(slots_.begin(), slots_.end(), staging);
    Check(runtime_->Copy(*runtime_->stream, runtime_->slots, staging,
                         slots_.size() * sizeof(TagSlot)));
  }

  const int block_size_;
  TagStepProgram model_;
  TagRuntime* runtime_ = nullptr;  // the backend's
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LoadedProgram> cuda_;
  std::vector<TagSlot> slots_;
  std::array<TagSlot*, 4> staging_{};
  size_t next_staging_ = 0;
  uint64_t* fault_ = nullptr;
  std::deque<size_t> flights_;  // samples of each
  std::vector<uint64_t> row_salts_;
  std::set<uint64_t> nan_seeds_;
  std::set<uint64_t>* failed_ = nullptr;  // in the next Run or Launch
  int64_t tokens_computed_ = 0;
};

}  // namespace

std::unique_ptr<TagLoaded> MakeTagProgram(const TagRunnerOptions& options) {
  return std::make_unique<CudaTagProgram>(options);
}

}  // namespace quire::test
