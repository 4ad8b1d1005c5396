// The ops of a step, each as jobs shared by the threads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"
#include "kernels/cpu/job_rows.h"
#include "kernels/step_times.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLeastNormFloats = 8192;  // smaller jobs cost less than waking a thread
constexpr int kLeastQuantisedFloats = 16384;
constexpr int kLeastTokens = 4;

}  // namespace

void CpuProgram::Execute(const StepBatch& batch, std::span<float> logits) {
  const PartTimer timer(times_ != nullptr ? &times_->steps : nullptr);
  pool_.CountIdle(times_ != nullptr ? &times_->idle : nullptr);
  step_.batch = &batch;
  step_.logits = logits;
  step_.tokens = static_cast<int>(batch.tokens.size());
  CopyPages();
  ComputeAngles();
  FindAdapterRuns();
  const auto run = [this](auto begin, auto end) {
    for (; begin != end && !step_.failed; ++begin) {
      const PartTimer one(times_ != nullptr ? &times_->ops[begin->index()] : nullptr);
      std::visit([this](const auto& op) { this->RunOp(op); }, *begin);
    }
  };
  // What follows the gathering of rows sees these rows alone, so it is done again for every slice.
  const auto gather = std::find_if(ops_.begin(), ops_.end(), [](const Op& op) {
    return std::holds_alternative<GatherRowsOp>(op);
  });
  run(ops_.begin(), gather);
  const int samples = static_cast<int>(batch.sampled_tokens.size());
  for (step_.first_sample = 0; step_.first_sample < samples; step_.first_sample += max_samples_) {
    step_.samples = std::min(samples - step_.first_sample, max_samples_);
    OrderSamples();
    run(gather, ops_.end());
  }
  step_ = Step{};
  pool_.CountIdle(nullptr);
}

void CpuProgram::CopyPages() {
  for (const PageCopy& copy : step_.batch->copies) {
    std::memcpy(pages_.data() + copy.to * kv_.page_bytes,
                pages_.data() + copy.from * kv_.page_bytes, static_cast<size_t>(kv_.page_bytes));
  }
}

// The angle is the float32 product of position and frequency, as models are trained with; its
// cosine and sine are taken in double.
void CpuProgram::ComputeAngles() {
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const Rope& rope = ropes_[i];
    const int half = rope.rotary_dim / 2;
    float* table = reinterpret_cast<float*>(angles_[i].data());
    Share(step_.tokens, kLeastTokens, [&](int begin, int end, int) {
      for (int t = begin; t < end; ++t) {
        const float position = static_cast<float>(step_.batch->positions[t]);
        float* angles = table + int64_t{t} * 2 * half;
        for (int j = 0; j < half; ++j) {
          const double angle = position * static_cast<float>(rope.inverse_frequency[j]);
          angles[j] = static_cast<float>(std::cos(angle) * rope.attention_factor);
          angles[half + j] = static_cast<float>(std::sin(angle) * rope.attention_factor);
        }
      }
    });
  }
}

void CpuProgram::RunOp(const EmbedOp& op) {
  EmbedJob words{.scale = op.scale};
  EmbedJob places{.add = op.table != kNoId};  // the first table writes, the second adds
  if (op.table != kNoId) words.table = &matrices_[op.table];
  if (op.positions != kNoId) places.table = &matrices_[op.positions];
  Share(step_.tokens, kLeastTokens, [&](int begin, int end, int thread) {
    for (int t = begin; t < end; ++t) {
      float* out = BufferData(op.out) + t * Stride(op.out);
      const int id = step_.batch->tokens[t] - vocabulary_.begin;
      if (words.table != nullptr && id >= 0 && id < vocabulary_.count) {
        kernels_.embed(words, id, out, Scratch(thread));
      } else if (words.table != nullptr) {
        std::fill_n(out, buffer_infos_[op.out].width, 0.0f);
      }
      if (places.table == nullptr) continue;
      kernels_.embed(places, step_.batch->positions[t] + op.position_offset, out, Scratch(thread));
    }
  });
}

void CpuProgram::RunOp(const NormOp& op) {
  NormJob job;
  job.kind = op.kind;
  job.weight = Vector(op.weight);
  job.bias = Vector(op.bias);
  job.epsilon = op.epsilon;
  job.weight_offset = op.weight_offset;
  job.accumulate = op.accumulate;
  job.scale = op.scale;
  job.pieces = op.pieces;
  job.width = buffer_infos_[op.in].width / op.pieces;
  job.in = BufferData(op.in);
  job.in_stride = Stride(op.in);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  Share(RowCount(op.in), kLeastNormFloats / (job.width * op.pieces) + 1,
        [&](int begin, int end, int) { kernels_.norm(job, begin, end); });
}

void CpuProgram::QuantiseRows(const KernelTable& kernels, LinearJob& job) {
  const int tiles = Int8TileCount(kernels, job);
  int32_t* const words = reinterpret_cast<int32_t*>(int8_rows_.data());
  Share(QuantisedPieces(kernels, job), kLeastQuantisedFloats / (kChunk * (job.rows / tiles)),
        [&](int begin, int end, int) { kernels.quantise(job, begin, end, words); });
  job.x_int8 = words;
}

void CpuProgram::RoundRows(LinearJob& job) {
  const Roundings& roundings = job.weight->roundings;
  PlaceRounded(job, reinterpret_cast<float*>(rounded_rows_.data()), rounded_inputs_.data());
  for (size_t i = 0; i < roundings.inputs.size(); ++i) {
    Share(RowTiles(job.rows, kernels_.rounded_tile_rows).count, 1, [&](int begin, int end, int) {
      kernels_.round(job, roundings.inputs[i], {begin, end}, rounded_inputs_[i]);
    });
  }
  job.x_rounded = rounded_inputs_.data();
}

// The inputs of a product in the order of its weight's columns.
void CpuProgram::OrderInputs(LinearJob& job) {
  const std::vector<int32_t>& order = job.weight->order;
  const int64_t k = job.weight->k;
  const int64_t stride = BufferStride(static_cast<int>(k));
  auto* const ordered = reinterpret_cast<float*>(ordered_rows_.data());
  Share(job.rows, static_cast<int>(kLeastQuantisedFloats / k) + 1,
        [&, from = job.x, from_stride = job.x_stride](int begin, int end, int) {
          for (int row = begin; row < end; ++row) {
            const float* const x = from + row * from_stride;
            float* const to = ordered + row * stride;
            for (int64_t i = 0; i < k; ++i) to[i] = x[order[static_cast<size_t>(i)]];
          }
        });
  job.x = ordered;
  job.x_stride = stride;
}

void CpuProgram::RunLinear(LinearJob& job) {
  if (job.rows == 0) return;
  if (!job.weight->order.empty()) OrderInputs(job);
  if (Rounds(kernels_, *job.weight)) {
    RoundRows(job);
  } else if (kernels_.quantise != nullptr && job.weight->takes_int8) {
    QuantiseRows(kernels_, job);
  } else if (NeedsTiles(kernels_, job)) {
    float* packed = reinterpret_cast<float*>(tiles_.data());
    Share(TileCount(kernels_, job), 2,
          [&](int begin, int end, int) { kernels_.pack_tiles(job, begin, end, packed); });
    job.x_tiles = packed;
  }
  Share(LinearUnits(*job.weight), 1,
        [&](int begin, int end, int thread) { kernels_.linear(job, begin, end, Scratch(thread)); });
}

void CpuProgram::RunOp(const LinearOp& op) {
  LinearJob job;
  job.weight = &matrices_[op.weight];
  job.x = BufferData(op.in);
  job.x_stride = Stride(op.in);
  job.rows = RowCount(op.in);
  job.bias = Vector(op.bias);
  job.activation = op.activation;
  job.scale = op.scale;
  job.accumulate = op.accumulate;
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  RunLinear(job);
}

LayerPages CpuProgram::PagesOf(int layer) const {
  const KvLayerPlace& place = kv_.layers[layer];
  const KvSlot slot = SlotOf(kv_, layer);
  const int64_t begin = place.slot * slot.bytes;
  LayerPages pages;
  pages.pool = pages_.data();
  pages.page_bytes = kv_.page_bytes;
  pages.head_elements = slot.head_elements;
  pages.key_offset = begin + slot.keys;
  pages.value_offset = begin + slot.values;
  pages.key_scale_offset = begin + slot.key_scales;
  pages.value_scale_offset = begin + slot.value_scales;
  pages.block_size = kv_.block_size;
  pages.group = place.group;
  pages.type = kv_.type;
  return pages;
}

void CpuProgram::RunOp(const SliceGateOp& op) {
  SliceGateJob job;
  job.gate = BufferData(op.gate);
  job.gate_stride = Stride(op.gate);
  job.with = BufferData(op.with) + op.first;
  job.with_stride = Stride(op.with);
  job.width = buffer_infos_[op.gate].width;
  job.scale = op.scale;
  Share(step_.tokens, kLeastTokens,
        [&](int begin, int end, int) { kernels_.slice_gate(job, begin, end); });
}

void CpuProgram::RunOp(const HeadSquaresOp& op) {
  SquaresJob job;
  job.qkv = BufferData(op.qkv);
  job.stride = Stride(op.qkv);
  job.q_width = op.heads * op.head_dim;
  job.k_width = op.keys ? op.kv_heads * op.head_dim : 0;
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  Share(step_.tokens, kLeastTokens,
        [&](int begin, int end, int) { kernels_.head_squares(job, begin, end); });
}

void CpuProgram::RunOp(const RopeAppendOp& op) {
  RopeJob job;
  job.qkv = BufferData(op.qkv);
  job.stride = Stride(op.qkv);
  job.heads = op.heads;
  job.kv_heads = op.kv_heads;
  job.head_dim = op.head_dim;
  job.norm = op.norm;
  job.q_norm = Vector(op.q_norm);
  job.k_norm = Vector(op.k_norm);
  if (op.norm == HeadNorm::kWhole) {
    job.squares = BufferData(op.squares);
    job.squares_stride = Stride(op.squares);
    job.q_width = static_cast<float>(op.norm_heads * op.head_dim);
    job.k_width = static_cast<float>(op.norm_kv_heads * op.head_dim);
  }
  job.v_norm = op.v_norm;
  job.growth = op.growth;
  job.epsilon = op.norm_epsilon;
  job.weight_offset = op.norm_weight_offset;
  if (op.rope != kNoId) {
    job.rotary_dim = ropes_[op.rope].rotary_dim;
    job.angles = reinterpret_cast<const float*>(angles_[op.rope].data());
  }
  job.pages = PagesOf(op.layer);
  job.rows = step_.batch->rows;
  ShareRows(kLeastTokens,
            [&](int row, int from, int to) { kernels_.rope_append(job, row, from, to); });
}

void CpuProgram::RunOp(const AllReduceOp& op) {
  const int64_t floats = RowCount(op.buffer) * Stride(op.buffer);
  if (communicator_ == nullptr || floats == 0) return;
  const std::span<float> values(BufferData(op.buffer), static_cast<size_t>(floats));
  step_.failed = communicator_->AllReduceSum(values) != CommFailure::kNone;
}

}  // namespace quire::kernels::cpu
