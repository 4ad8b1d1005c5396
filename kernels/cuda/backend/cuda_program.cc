#include "kernels/cuda/backend/cuda_program.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cuda/backend/products.h"
#include "kernels/cuda/ops/attention.h"

namespace quire::kernels::cuda {
namespace {

int64_t RowsOf(const DeviceBuffer& buffer, const ProgramOptions& options) {
  return buffer.sampled_rows_only ? options.max_samples : options.max_tokens;
}

int MaxPositions(const StepProgram& program, const ProgramOptions& options) {
  return options.max_positions > 0 ? options.max_positions : program.max_positions;
}

void PlanProducts(const StepProgram& program, const DeviceProgram& lowered,
                  const ProgramOptions& options, Workspace& plan) {
  const auto add = [&](WeightId id, bool sampled) {
    const DeviceWeight weight = PlanWeight(program.weights[id], lowered.weights[id]);
    const int most = sampled ? options.max_samples : options.max_tokens;
    // The kernel changes at powers of two, and with it how many blocks meet; then all is linear.
    for (int m = 8; m < 2 * most + 8; m = m < 128 ? 2 * m : m + 128) {
      const int rows = std::min(m, most);
      const ProductNeeds needs = NeedsOfProduct(weight, rows);
      plan.product_bytes = std::max(plan.product_bytes, needs.bytes);
      plan.product_counters = std::max(plan.product_counters, needs.counters);
    }
  };
  for (const DeviceStep& step : lowered.steps) {
    if (const auto* product = std::get_if<ProductStep>(&step)) {
      add(product->weight, lowered.buffers[product->in].sampled_rows_only);
    } else if (const auto* logits = std::get_if<LogitsOp>(&step)) {
      add(logits->head, true);
    }
  }
}

void PlanAttention(const StepProgram& program, const StepShape& largest, Workspace& plan) {
  if (program.kv_heads == 0) return;
  for (const int rows : {16, 64}) {
    AttentionPlan attention;
    attention.tile_count = rows == 16 ? largest.decode_tiles : largest.prefill_tiles;
    attention.max_spans = largest.max_spans;
    attention.rows_per_tile = rows;
    plan.attention_bytes =
        std::max(plan.attention_bytes,
                 AttentionWorkspaceBytes(attention, program.kv_heads, program.head_dim));
    plan.attention_counters =
        std::max(plan.attention_counters,
                 static_cast<size_t>(attention.tile_count) * static_cast<size_t>(program.kv_heads));
  }
}

// Room for one row with every list as long as the vocabulary, or for many as they usually are. More
// rows than fit are sampled by several launches.
int64_t SampleBytes(int64_t vocabulary, int rows) {
  constexpr int64_t kUsualRowBytes = 4096;
  constexpr int64_t kBytesPerId = 40;  // of mask, bans, biases, counts and what the kernel keeps
  return std::max(kBytesPerId * vocabulary, rows * kUsualRowBytes) + kUsualRowBytes;
}

}  // namespace

int GatheredStride(const StepProgram& program) {
  return (VocabularyOf(program).width * program.ranks + 3) / 4 * 4;
}

int64_t Workspace::Bytes() const {
  int64_t bytes = 4 * input_words + static_cast<int64_t>(product_bytes + attention_bytes) +
                  4 * static_cast<int64_t>(product_counters + attention_counters);
  for (const int64_t buffer : buffer_bytes) bytes += buffer;
  for (const int64_t floats : angle_floats) bytes += 4 * floats;
  return bytes + sample_bytes + 4 * gathered_floats;
}

StepRules RulesOf(const StepProgram& program, const ProgramOptions& options) {
  StepRules rules;
  rules.block_size = options.kv.block_size;
  rules.groups = static_cast<int>(options.kv.groups.size());
  rules.heads_per_kv_head = program.kv_heads > 0 ? program.heads / program.kv_heads : 1;
  return rules;
}

Workspace PlanWorkspace(const StepProgram& program, const DeviceProgram& lowered,
                        const ProgramOptions& options) {
  Workspace plan;
  int64_t widest_sum = 0;
  for (const DeviceStep& step : lowered.steps) {
    const auto* sum = std::get_if<SumStep>(&step);
    if (sum == nullptr) continue;
    const DeviceBuffer& buffer = lowered.buffers[sum->buffer];
    widest_sum = std::max(widest_sum, RowsOf(buffer, options) * buffer.width);
  }
  plan.shared_bytes = 4 * widest_sum;
  for (const DeviceBuffer& buffer : lowered.buffers) {
    plan.buffer_bytes.push_back(RowsOf(buffer, options) * buffer.width *
                                (buffer.is_float32 ? 4 : 2));
  }
  const int64_t positions = MaxPositions(program, options);
  for (const Rope& rope : program.ropes) plan.angle_floats.push_back(positions * rope.rotary_dim);
  StepShape limits;
  limits.tokens = options.max_tokens;
  limits.rows = options.max_rows;
  limits.samples = options.max_tokens;  // a scored prompt wants the logits of all its tokens
  const StepShape largest =
      LargestShape(RulesOf(program, options), limits, static_cast<int>(positions));
  plan.input_words = InputPlaces(largest).words;
  plan.sample_bytes = SampleBytes(program.vocab_size, options.max_samples);
  if (program.ranks > 1) {
    plan.gathered_floats = int64_t{options.max_samples} * GatheredStride(program);
  }
  PlanProducts(program, lowered, options, plan);
  PlanAttention(program, largest, plan);
  return plan;
}

CudaProgram::CudaProgram(const StepProgram& program, DeviceProgram lowered,
                         const ProgramOptions& options, runtime::Runtime& runtime)
    : runtime_(runtime),
      heap_(runtime),
      lowered_(std::move(lowered)),
      rules_(RulesOf(program, options)),
      kv_(options.kv),
      vocab_size_(program.vocab_size),
      vocabulary_(VocabularyOf(program)),
      ranks_(program.ranks),
      max_samples_(options.max_samples),
      communicator_(program.ranks > 1 ? options.communicator : nullptr) {
  Check(runtime_.CreateStream(&stream_));
  const Workspace workspace = PlanWorkspace(program, lowered_, options);
  Check(weights_.Load(program, lowered_, options, runtime_, heap_));
  weight_bytes_ = heap_.bytes();
  Reserve(program, workspace, options);
  Check(heap_.error());
  if (error_.empty()) LoadAngles(program.ropes, workspace);
}

void CudaProgram::Reserve(const StepProgram& program, const Workspace& workspace,
                          const ProgramOptions& options) {
  for (const int64_t bytes : workspace.buffer_bytes) {
    buffers_.push_back(heap_.New<std::byte>(static_cast<size_t>(bytes)));
  }
  for (const int64_t floats : workspace.angle_floats) {
    angles_.push_back({heap_.New<float>(static_cast<size_t>(floats)), 0});
  }
  inputs_ = heap_.New<int32_t>(static_cast<size_t>(workspace.input_words));
  staging_ = heap_.NewMapped<int32_t>(static_cast<size_t>(workspace.input_words));
  samples_.capacity = static_cast<size_t>(workspace.sample_bytes);
  samples_.packed = heap_.NewMapped<std::byte>(samples_.capacity);
  samples_.device = heap_.New<std::byte>(samples_.capacity);
  samples_.outputs = heap_.NewMapped<SampleOutput>(static_cast<size_t>(options.max_samples));
  samples_.gathered = heap_.New<float>(static_cast<size_t>(workspace.gathered_floats));
  samples_.stride = GatheredStride(program);
  page_copies_ = heap_.NewMapped<int32_t>(2 * kMaxPageCopies);
  product_workspace_ = heap_.New<float>(workspace.product_bytes / sizeof(float));
  attention_workspace_ = heap_.New<float>(workspace.attention_bytes / sizeof(float));
  product_counters_ = heap_.New<uint32_t>(workspace.product_counters);
  attention_counters_ = heap_.New<uint32_t>(workspace.attention_counters);
  workspace_bytes_ = heap_.bytes() - weight_bytes_;
  pool_bytes_ = options.page_count * options.kv.page_bytes;
  pool_ = heap_.New<std::byte>(static_cast<size_t>(pool_bytes_));
  if (ranks_ > 1) ReserveExchange(workspace);
  if (!heap_.error().empty() || !error_.empty()) return;
  Check(runtime_.Fill(stream_, product_counters_, 0, 4 * workspace.product_counters));
  if (attention_counters_ != nullptr) {
    Check(runtime_.Fill(stream_, attention_counters_, 0, 4 * workspace.attention_counters));
  }
}

// The angle is the float32 product of position and frequency, as models are trained with; its
// cosine and sine are taken in double.
void CudaProgram::LoadAngles(const std::vector<Rope>& ropes, const Workspace& workspace) {
  for (size_t i = 0; i < ropes.size(); ++i) {
    const Rope& rope = ropes[i];
    angles_[i].rotary_dim = rope.rotary_dim;
    if (rope.rotary_dim == 0) continue;
    const int half = rope.rotary_dim / 2;
    const int64_t positions = workspace.angle_floats[i] / rope.rotary_dim;
    std::vector<float> table(static_cast<size_t>(workspace.angle_floats[i]));
    for (int64_t p = 0; p < positions; ++p) {
      float* row = table.data() + p * rope.rotary_dim;
      for (int j = 0; j < half; ++j) {
        const double angle = static_cast<float>(p) * static_cast<float>(rope.inverse_frequency[j]);
        row[j] = static_cast<float>(std::cos(angle) * rope.attention_factor);
        row[half + j] = static_cast<float>(std::sin(angle) * rope.attention_factor);
      }
    }
    Check(runtime_.Copy(stream_, angles_[i].table, table.data(), 4 * table.size()));
    Finish();
  }
}

void CudaProgram::Finish() {
  if (error_.empty()) Check(runtime_.Synchronize(stream_));
}

void CudaProgram::PoisonPage(int32_t page) {
  Check(runtime_.Fill(stream_, pool_ + page * kv_.page_bytes, 0xff,
                      static_cast<size_t>(kv_.page_bytes)));
  Finish();
}

}  // namespace quire::kernels::cuda
