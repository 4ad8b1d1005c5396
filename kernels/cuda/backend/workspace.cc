#include "kernels/cuda/backend/workspace.h"

#include <algorithm>

#include "kernels/cuda/backend/adapter_places.h"
#include "kernels/cuda/backend/moe_places.h"
#include "kernels/cuda/backend/products.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/latent/latent_attention.h"
#include "kernels/cuda/ops/lora/adapter_product.h"
#include "kernels/cuda/ops/sample/sample_slice.h"

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

void PlanMoe(const StepProgram& program, const DeviceProgram& lowered,
             const ProgramOptions& options, Workspace& plan) {
  for (const DeviceStep& step : lowered.steps) {
    const auto* moe = std::get_if<MoeStep>(&step);
    if (moe == nullptr) continue;
    const int tokens = std::min(options.max_tokens, kMoeTokens);
    const MoeOp::Expert& expert = moe->op.experts.front();
    const MoeShape shape{moe->op.ExpertCount(), moe->op.rule.chosen,
                         lowered.buffers[moe->op.in].width,
                         static_cast<int>(program.weights[expert.gate_up].rows),
                         static_cast<int>(program.weights[expert.down].cols)};
    plan.moe_bytes = std::max(plan.moe_bytes, MoePlaces(shape, tokens).bytes);
    plan.moe_counters = std::max(plan.moe_counters, static_cast<size_t>(RouteCounters(tokens)));
  }
}

void PlanAdapterProducts(const DeviceProgram& lowered, const ProgramOptions& options,
                         Workspace& plan) {
  if (options.max_loras == 0) return;
  const AdapterPlan adapters = PlanAdapters(lowered, options.max_lora_rank);
  plan.adapter_bytes = int64_t{2} * options.max_tokens * adapters.inner;
  for (const AdapterPlaces& places : adapters.steps) {
    plan.product_bytes =
        std::max(plan.product_bytes, AdapterWorkspaceBytes(places.inner, places.width));
    plan.product_counters = std::max(plan.product_counters, size_t{kAdapterCounters});
  }
}

// Of the layers with such heads, which have `prefill_tiles`.
void PlanHeads(const KvHeads& heads, int prefill_tiles, const StepShape& largest, Workspace& plan) {
  for (const int rows : {16, 64}) {
    AttentionPlan attention;
    attention.tile_count = rows == 16 ? largest.decode_tiles : prefill_tiles;
    attention.max_spans = largest.max_spans;
    attention.rows_per_tile = rows;
    plan.attention_bytes = std::max(
        plan.attention_bytes, AttentionWorkspaceBytes(attention, heads.kv_heads, heads.head_dim));
    plan.attention_counters =
        std::max(plan.attention_counters,
                 static_cast<size_t>(attention.tile_count) * static_cast<size_t>(heads.kv_heads));
  }
}

void PlanAttention(const StepProgram& program, const StepShape& largest, Workspace& plan) {
  if (program.kv_heads == 0 || program.latents) return;
  PlanHeads({program.kv_heads, program.head_dim}, largest.prefill_tiles, largest, plan);
  if (program.full.kv_heads == 0) return;
  PlanHeads(program.full, largest.full_prefill_tiles, largest, plan);
}

void PlanLatents(const StepShape& largest, const DeviceProgram& lowered, Workspace& plan) {
  for (const DeviceStep& step : lowered.steps) {
    if (const auto* heads = std::get_if<HeadLinearStep>(&step)) {
      plan.head_table_bytes += static_cast<int64_t>(heads->weights.size() * sizeof(void*));
    }
    const auto* latents = std::get_if<LatentAttentionStep>(&step);
    if (latents == nullptr) continue;
    const LatentAttentionOp* op = &latents->op;
    for (const bool decode : {true, false}) {
      LatentPlan attention;
      attention.tile_count = decode ? largest.decode_tiles : largest.prefill_tiles;
      attention.max_spans = largest.max_spans;
      attention.tile_queries =
          LatentTileQueries(decode ? kDecodeTileRows : kPrefillTileRows, op->heads);
      attention.apart = decode;
      plan.attention_bytes = std::max(
          plan.attention_bytes, LatentWorkspaceBytes(attention, op->heads, op->rank, op->rope_dim));
      plan.attention_counters =
          std::max(plan.attention_counters, LatentCounters(attention, op->heads));
    }
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

int64_t Workspace::Bytes() const {
  int64_t bytes = 4 * input_words +
                  static_cast<int64_t>(product_bytes + attention_bytes + moe_bytes) +
                  4 * static_cast<int64_t>(product_counters + attention_counters + moe_counters);
  for (const int64_t buffer : buffer_bytes) bytes += buffer;
  for (const int64_t floats : angle_floats) bytes += 4 * floats;
  return bytes + adapter_bytes + head_table_bytes + sample_bytes + slice_bytes + message_bytes +
         heard_bytes + output_bytes + 4 * state_words + spare_bytes;
}

StepRules RulesOf(const StepProgram& program, const ProgramOptions& options) {
  StepRules rules;
  rules.block_size = options.kv.block_size;
  rules.groups = static_cast<int>(options.kv.groups.size());
  rules.state_groups = options.kv.states.groups;
  rules.heads_per_kv_head = program.kv_heads > 0 ? program.heads / program.kv_heads : 1;
  if (program.full.kv_heads > 0) {
    rules.full_heads_per_kv_head = program.heads / program.full.kv_heads;
  }
  rules.slots = options.max_rows;
  rules.blocks =
      (MaxPositions(program, options) + options.kv.block_size - 1) / options.kv.block_size;
  rules.max_loras = options.max_loras;
  rules.spare_page = static_cast<int32_t>(options.page_count);
  return rules;
}

Workspace PlanWorkspace(const StepProgram& program, const DeviceProgram& lowered,
                        const ProgramOptions& options) {
  Workspace plan;
  int64_t widest_sum = 0;
  for (const DeviceStep& step : lowered.steps) {
    if (const auto* sum = std::get_if<SumStep>(&step)) {
      const DeviceBuffer& buffer = lowered.buffers[sum->buffer];
      widest_sum = std::max(widest_sum, RowsOf(buffer, options) * buffer.width);
    }
  }
  plan.shared_bytes = 4 * widest_sum;
  for (const DeviceBuffer& buffer : lowered.buffers) {
    plan.buffer_bytes.push_back(RowsOf(buffer, options) * buffer.width *
                                (buffer.is_float32 ? 4 : 2));
  }
  const int positions = MaxPositions(program, options);
  // Padding has positions below a block's.
  const int64_t angles = std::max(positions, options.kv.block_size);
  for (const Rope& rope : program.ropes) plan.angle_floats.push_back(angles * rope.rotary_dim);
  const StepRules rules = RulesOf(program, options);
  // A scored prompt needs the logits of all its tokens.
  const StepShape largest =
      LargestShape(rules, {options.max_tokens, options.max_tokens, positions});
  plan.input_words = InputPlaces(largest).words;
  plan.sample_bytes = SampleBytes(program.vocab_size, options.max_samples);
  plan.output_bytes = options.max_samples * static_cast<int64_t>(sizeof(SampleOutput));
  plan.state_words = int64_t{rules.groups} * rules.slots * rules.blocks + rules.slots;
  plan.spare_bytes = SparePages(options.max_rows, rules.block_size) * options.kv.page_bytes;
  if (program.ranks > 1) {
    plan.slice_bytes = static_cast<int64_t>(SliceStateBytes(options.max_samples));
    plan.message_bytes = int64_t{options.max_samples} * kMostSliceMessage;
    plan.heard_bytes = program.ranks * plan.message_bytes;
  }
  PlanMoe(program, lowered, options, plan);
  PlanProducts(program, lowered, options, plan);
  PlanAdapterProducts(lowered, options, plan);
  PlanAttention(program, largest, plan);
  PlanLatents(largest, lowered, plan);
  return plan;
}

}  // namespace quire::kernels::cuda
