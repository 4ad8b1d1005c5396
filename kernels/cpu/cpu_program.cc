#include "kernels/cpu/cpu_program.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "kernels/cpu/int8_form.h"
#include "kernels/row_writer.h"

namespace quire::kernels::cpu {
namespace {

constexpr int64_t kSlabBytes = 8 << 20;  // of source weights packed before they are released

int64_t SourceBytes(const Weight& weight) {
  int64_t bytes = 0;
  for (const WeightSource& part : weight.parts) bytes += part.Bytes();
  return bytes;
}

// What is not read again once these rows have been packed, and all before them.
std::span<const std::byte> BytesBehind(const WeightSource& source, int64_t first, int64_t count) {
  if (source.writer != nullptr) return source.writer->BytesBehind(first, count);
  // The gaps between the rows of a slice belong to other ranks: they read them from disk again.
  const int64_t bytes = (count - 1) * source.RowStride() + source.RowBytes();
  return {source.Row(first), static_cast<size_t>(bytes)};
}

void MarkMatrix(std::vector<WeightRole>& roles, WeightId id, bool gated) {
  if (id == kNoId) return;
  roles[id].matrix = true;
  roles[id].gated = roles[id].gated || gated;
}

void MarkVector(std::vector<WeightRole>& roles, WeightId id) {
  if (id != kNoId) roles[id].vector = true;
}

// Rows of x that a product may hold in tiles; few rows are padded to 16.
int64_t TileRows(const ProgramOptions& options) {
  return std::max({options.max_tokens, options.max_samples, 16});
}

bool TakesInt8(const Weight& weight) {
  return std::all_of(weight.parts.begin(), weight.parts.end(),
                     [](const WeightSource& part) { return cpu::TakesInt8(part.type); });
}

// The head whose largest logits can be found by a screen, of `program` as a whole; null: there is
// none. What comes after the product must keep the order of logits, and not make equals of them.
const Weight* HeadToScreen(const StepProgram& program) {
  if (program.ranks > 1 || !program.screen_head) return nullptr;
  for (const Op& op : program.ops) {
    const auto* logits = std::get_if<LogitsOp>(&op);
    if (logits == nullptr) continue;
    const Weight& head = program.weights[logits->head];
    const bool plain = logits->bias == kNoId && logits->scale == 1.0f && logits->softcap == 0.0f;
    return plain && HeadScreen::Suits(head) ? &head : nullptr;
  }
  return nullptr;
}

// Bytes for the x of any product: as floats in register tiles, quantised, or rounded.
struct InputBytes {
  int64_t tiles = 0;
  int64_t quantised = 0;
  int64_t rounded = 0;
  int64_t ordered = 0;  // floats in the order of a weight's columns
};
InputBytes InputBytesOf(const StepProgram& program, const ProgramOptions& options,
                        const KernelTable& kernels, bool screened) {
  const bool int8 = kernels.quantise != nullptr;
  InputBytes bytes;
  if (const Weight* head = screened ? HeadToScreen(program) : nullptr) {
    bytes.quantised = 4 * Int8RowWords(head->cols) * std::max(options.max_samples, 16);
  }
  bytes.tiles = 4 * LoraNeeds::Of(program, options).tile_floats;
  for (const Op& op : program.ops) {
    if (const auto* heads = std::get_if<HeadLinearOp>(&op)) {
      const int64_t k = program.weights[heads->weights.front()].cols;
      bytes.tiles = std::max(bytes.tiles,
                             4 * GroupTileFloats(std::max<int64_t>(TileRows(options), 2 * 16), k));
    }
    const auto* linear = std::get_if<LinearOp>(&op);
    const auto* logits = std::get_if<LogitsOp>(&op);
    if (linear == nullptr && logits == nullptr) continue;
    const Weight& weight = program.weights[linear != nullptr ? linear->weight : logits->head];
    if (!weight.parts.empty() && weight.parts.front().order != nullptr) {
      const int64_t row = BufferStride(static_cast<int>(weight.cols));
      bytes.ordered = std::max(bytes.ordered, 4 * row * TileRows(options));
    }
    const Roundings roundings = kernels.round != nullptr ? RoundingsOf(weight) : Roundings();
    if (roundings.any()) {
      bytes.rounded =
          std::max(bytes.rounded, RoundedBytes(roundings, weight.cols, TileRows(options)));
    } else if (int8 && TakesInt8(weight)) {
      bytes.quantised =
          std::max(bytes.quantised, 4 * Int8RowWords(weight.cols) * TileRows(options));
    } else {
      bytes.tiles = std::max(bytes.tiles,
                             4 * BufferStride(static_cast<int>(weight.cols)) * TileRows(options));
    }
  }
  return bytes;
}

// Which buffers the ranks sum: those lie where the others can read them.
std::vector<bool> SharedBuffers(const StepProgram& program) {
  std::vector<bool> shared(program.buffers.size(), false);
  for (const Op& op : program.ops) {
    if (const auto* sum = std::get_if<AllReduceOp>(&op)) shared[sum->buffer] = program.ranks > 1;
  }
  return shared;
}

int64_t SamplerBytes(const StepProgram& program, int max_samples, int threads) {
  if (program.ranks > 1) return RankSampling::ReservedBytes(program, max_samples);
  return sampling::Sampler::ReservedBytes(program.vocab_size) * threads;
}

int64_t RowsOf(const Buffer& buffer, const ProgramOptions& options) {
  return buffer.sampled_rows_only ? options.max_samples : options.max_tokens;
}

int64_t ScratchFloats(const StepProgram& program, const ProgramOptions& options) {
  const int64_t linear = LinearScratchFloats(std::max(options.max_tokens, options.max_samples));
  int64_t attention = 0;
  for (const Op& op : program.ops) {
    if (std::holds_alternative<LatentAttentionOp>(op)) {
      attention = std::max(attention, AttentionScratchFloats(kAttentionRows, 1, program.head_dim));
    }
    const auto* one = std::get_if<AttentionOp>(&op);
    if (one == nullptr) continue;
    attention =
        std::max(attention, AttentionScratchFloats(one->heads, one->kv_heads, one->head_dim));
  }
  int64_t states = 0;
  for (const StateShape& state : program.states) {
    states = std::max(states, RecurrenceScratchFloats(state.key_dim));
  }
  return (std::max({linear, attention, states}) + 63) / 64 * 64;
}

// Of one op in one step: pieces of a row's tokens, for each head of the cache.
size_t MostAttentionTasks(const StepProgram& program, const ProgramOptions& options) {
  int64_t most = 0;
  for (const Op& op : program.ops) {
    if (const auto* latent = std::get_if<LatentAttentionOp>(&op)) {
      // Tasks of more than half their rows, or one for each head of a row.
      const int64_t rows = int64_t{options.max_tokens} * latent->heads;
      most = std::max(most, 2 * rows / kAttentionRows + int64_t{options.max_rows} * latent->heads);
    }
    const auto* attention = std::get_if<AttentionOp>(&op);
    if (attention == nullptr) continue;
    const int tokens = AttentionTokens(attention->heads, attention->kv_heads);
    const int64_t pieces = options.max_tokens / tokens + options.max_rows;
    most = std::max(most, pieces * attention->kv_heads);
  }
  return static_cast<size_t>(most);
}

// The panels of each unit go to the node whose threads take it first. Which units of experts, or of
// heads, are shared out together depends on the step: their panels are dealt to all nodes.
void PlaceMatrix(const PackedMatrix& matrix, const WeightRole& role,
                 const std::vector<NumaNode>& nodes) {
  if (nodes.empty()) return;
  const Pages& memory = matrix.memory;
  if (role.expert || role.latent) {
    PlaceOnAllNodes(memory.data(), memory.size(), nodes);
    return;
  }
  const int units = LinearUnits(matrix);
  for (int begin = 0, end = 0; begin < matrix.PanelCount(); begin = end) {
    const int node = NodeOfPiece(begin % units, units, nodes);
    while (end < matrix.PanelCount() && NodeOfPiece(end % units, units, nodes) == node) ++end;
    const std::byte* const data = matrix.panels[static_cast<size_t>(begin)].data;
    const std::byte* const after = end == matrix.PanelCount()
                                       ? memory.data() + memory.size()
                                       : matrix.panels[static_cast<size_t>(end)].data;
    PlaceOnNode(data, after - data, nodes[static_cast<size_t>(node)]);
  }
}

// Products that run together.
size_t MostJobs(const StepProgram& program) {
  size_t most = 0;
  for (const Op& op : program.ops) {
    if (const auto* moe = std::get_if<MoeOp>(&op)) most = std::max(most, moe->experts.size());
    if (const auto* heads = std::get_if<HeadLinearOp>(&op)) {
      most = std::max(most, heads->weights.size());
    }
  }
  return most;
}

}  // namespace

int64_t BufferStride(int width) { return (int64_t{width} + 15) / 16 * 16; }

std::vector<WeightRole> FindRoles(const StepProgram& program) {
  std::vector<WeightRole> roles(program.weights.size());
  for (const Op& op : program.ops) {
    if (const auto* embed = std::get_if<EmbedOp>(&op)) {
      MarkMatrix(roles, embed->table, false);
      MarkMatrix(roles, embed->positions, false);
    } else if (const auto* norm = std::get_if<NormOp>(&op)) {
      MarkVector(roles, norm->weight);
      MarkVector(roles, norm->bias);
    } else if (const auto* linear = std::get_if<LinearOp>(&op)) {
      MarkMatrix(roles, linear->weight, LinearOp::IsGated(linear->activation));
      MarkVector(roles, linear->bias);
    } else if (const auto* rope = std::get_if<RopeAppendOp>(&op)) {
      MarkVector(roles, rope->q_norm);
      MarkVector(roles, rope->k_norm);
    } else if (const auto* attention = std::get_if<AttentionOp>(&op)) {
      MarkVector(roles, attention->sinks);
    } else if (const auto* conv = std::get_if<CausalConvOp>(&op)) {
      MarkVector(roles, conv->weight);
      MarkVector(roles, conv->bias);
    } else if (const auto* recurrence = std::get_if<RecurrenceOp>(&op)) {
      for (const WeightId id : {recurrence->decay, recurrence->bias, recurrence->skip}) {
        MarkVector(roles, id);
      }
    } else if (const auto* gated = std::get_if<GatedNormOp>(&op)) {
      MarkVector(roles, gated->weight);
    } else if (const auto* logits = std::get_if<LogitsOp>(&op)) {
      MarkMatrix(roles, logits->head, false);
      MarkVector(roles, logits->bias);
    } else if (const auto* moe = std::get_if<MoeOp>(&op)) {
      MarkVector(roles, moe->router);
      MarkVector(roles, moe->router_bias);
      MarkVector(roles, moe->selection_bias);
      MarkVector(roles, moe->expert_scales);
      for (const MoeOp::Expert& expert : moe->experts) {
        MarkMatrix(roles, expert.gate_up, LinearOp::IsGated(moe->activation));
        MarkMatrix(roles, expert.down, false);
        roles[expert.gate_up].expert = roles[expert.down].expert = true;
        MarkVector(roles, expert.gate_up_bias);
        MarkVector(roles, expert.down_bias);
      }
    } else if (const auto* append = std::get_if<LatentAppendOp>(&op)) {
      MarkVector(roles, append->norm);
    } else if (const auto* product = std::get_if<HeadLinearOp>(&op)) {
      for (const WeightId id : product->weights) {
        MarkMatrix(roles, id, false);
        roles[id].latent = true;
      }
    }
  }
  return roles;
}

CpuProgram::CpuProgram(const StepProgram& program, const ProgramOptions& options,
                       const KernelTable& kernels, const KernelTable* screen, ThreadPool& pool)
    : kernels_(kernels),
      pool_(pool),
      kv_(options.kv),
      ops_(program.ops),
      ropes_(program.ropes),
      states_(program.states),
      buffer_infos_(program.buffers),
      features_(program.features),
      vocab_size_(program.vocab_size),
      vocabulary_(VocabularyOf(program)),
      communicator_(program.ranks > 1 ? options.communicator : nullptr),
      max_samples_(options.max_samples),
      screen_kernels_(screen),
      screen_found_(static_cast<size_t>(options.max_samples)),
      sample_order_(static_cast<size_t>(options.max_samples)),
      times_(options.times) {
  LoadWeights(program, options);
  pages_ = Pages(options.page_count * kv_.page_bytes, true);
  // A row's attention goes to any thread.
  if (!pool_.nodes().empty()) PlaceOnAllNodes(pages_.data(), pages_.size(), pool_.nodes());
  scratch_floats_ = ScratchFloats(program, options);
  const InputBytes inputs = InputBytesOf(program, options, kernels, screen != nullptr);
  tiles_ = Pages(inputs.tiles);
  int8_rows_ = Pages(inputs.quantised);
  rounded_rows_ = Pages(inputs.rounded);
  ordered_rows_ = Pages(inputs.ordered);
  size_t most_inputs = 0;
  for (const PackedMatrix& matrix : matrices_) {
    most_inputs = std::max(most_inputs, matrix.roundings.inputs.size());
  }
  rounded_inputs_.resize(most_inputs);
  ReserveWorkspace(program, options);
  if (communicator_ != nullptr) {
    rank_sampling_ = std::make_unique<RankSampling>(program, *communicator_, options.max_samples);
  } else {
    samplers_.resize(static_cast<size_t>(pool.threads()));
    for (sampling::Sampler& sampler : samplers_) sampler.Reserve(vocab_size_);
  }
  attention_tasks_.reserve(MostAttentionTasks(program, options));
  moe_ = MoeWorkspace(program, options.max_tokens, kernels.round != nullptr);
  workspace_bytes_ += moe_.Bytes();
  const LoraNeeds lora = LoraNeeds::Of(program, options);
  group_.Reserve(std::max(MostJobs(program), lora.jobs), most_inputs);
  adapters_.resize(static_cast<size_t>(options.max_loras));
  adapter_runs_.reserve(static_cast<size_t>(options.max_rows));
  lora_rank_stride_ = BufferStride(options.max_lora_rank);
  lora_inner_ = Pages(4 * lora.inner_floats);
  workspace_bytes_ += lora_inner_.size();
}

void CpuProgram::LoadWeights(const StepProgram& program, const ProgramOptions& options) {
  const std::vector<WeightRole> roles = FindRoles(program);
  int64_t total_bytes = 0;
  for (const Weight& weight : program.weights) total_bytes += SourceBytes(weight);
  matrices_.resize(program.weights.size());
  vectors_.resize(program.weights.size());
  const Weight* const head = screen_kernels_ == nullptr ? nullptr : HeadToScreen(program);
  if (head != nullptr) screen_ = HeadScreen(*head);
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    if (roles[id].matrix) {
      matrices_[id] = PlanMatrix(weight, roles[id].gated);
      if (roles[id].latent) {  // in every class these multiply float32 activations
        matrices_[id].takes_int8 = false;
        matrices_[id].roundings = Roundings();
      }
      AllocateMatrix(matrices_[id]);
      PlaceMatrix(matrices_[id], roles[id], pool_.nodes());
      PackWeight(weight, matrices_[id], options, total_bytes, &weight == head ? &screen_ : nullptr);
      weight_bytes_ += matrices_[id].memory.size();
    } else if (roles[id].vector) {
      vectors_[id] = UnpackVector(weight);
      weight_bytes_ += static_cast<int64_t>(vectors_[id].size()) * 4;
      packed_source_bytes_ += SourceBytes(weight);
    }
  }
  if (head != nullptr && screen_.Finish()) {
    weight_bytes_ += screen_.bytes();
    screen_scratch_.resize(static_cast<size_t>(pool_.threads()));
    for (ScreenScratch& scratch : screen_scratch_) screen_.Reserve(scratch);
  }
  if (options.progress) options.progress(total_bytes, total_bytes);
}

void CpuProgram::PackWeight(const Weight& weight, PackedMatrix& matrix,
                            const ProgramOptions& options, int64_t total_bytes,
                            HeadScreen* screen) {
  std::vector<std::vector<std::byte>> scratch(static_cast<size_t>(pool_.threads()));
  for (int begin = 0; begin < matrix.PanelCount();) {
    const Panel& first = matrix.panels[begin];
    const WeightSource& source = weight.parts[first.part];
    const int64_t panel_bytes = std::max<int64_t>(1, kPanelRows * source.RowBytes());
    const int slab = static_cast<int>(std::max<int64_t>(1, kSlabBytes / panel_bytes));
    int end = begin;
    while (end < matrix.PanelCount() && end - begin < slab &&
           matrix.panels[end].part == first.part) {
      ++end;
    }
    pool_.Run(end - begin, [&](int index, int thread) {
      const int panel = begin + index;
      const PanelRows rows = RowsOf(source, matrix.panels[panel], scratch[thread]);
      PackPanel(matrix, panel, rows);
      if (screen != nullptr) screen->Pack(source.type, rows, panel);
    });
    const Panel& last = matrix.panels[end - 1];
    const int64_t rows = last.part_row + last.rows - first.part_row;
    if (options.release_source) {
      const std::span<const std::byte> read = BytesBehind(source, first.part_row, rows);
      options.release_source(read.data(), static_cast<int64_t>(read.size()));
    }
    packed_source_bytes_ += rows * source.RowBytes();
    if (options.progress) options.progress(packed_source_bytes_, total_bytes);
    begin = end;
  }
}

void CpuProgram::ReserveWorkspace(const StepProgram& program, const ProgramOptions& options) {
  const std::vector<bool> shared = SharedBuffers(program);
  for (size_t id = 0; id < buffer_infos_.size(); ++id) {
    const Buffer& buffer = buffer_infos_[id];
    const int64_t bytes = 4 * BufferStride(buffer.width) * RowsOf(buffer, options);
    std::byte* data = nullptr;
    if (shared[id]) data = communicator_->Allocate(static_cast<size_t>(bytes));
    buffers_.emplace_back(data == nullptr ? bytes : 0);
    if (data == nullptr) data = buffers_.back().data();
    buffer_data_.push_back(reinterpret_cast<float*>(data));
    buffer_bytes_.push_back(bytes);
    workspace_bytes_ += bytes;
  }
  for (const Rope& rope : ropes_) {
    angles_.emplace_back(4 * std::max<int64_t>(1, rope.rotary_dim) * options.max_tokens);
    workspace_bytes_ += angles_.back().size();
  }
  scratch_ = Pages(4 * scratch_floats_ * pool_.threads());
  workspace_bytes_ += scratch_.size() + tiles_.size() + int8_rows_.size() + rounded_rows_.size();
  workspace_bytes_ += ordered_rows_.size();
  workspace_bytes_ += SamplerBytes(program, options.max_samples, pool_.threads());
}

int64_t CpuProgram::EstimateWeights(const StepProgram& program, bool screened) {
  const std::vector<WeightRole> roles = FindRoles(program);
  int64_t bytes = 0;
  if (const Weight* head = screened ? HeadToScreen(program) : nullptr) {
    bytes += HeadScreen::Bytes(*head);
  }
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    if (roles[id].matrix) {
      bytes += PackedBytes(PlanMatrix(weight, roles[id].gated));
    } else if (roles[id].vector) {
      for (const WeightSource& part : weight.parts) bytes += part.rows * part.cols * 4;
    }
  }
  return bytes;
}

int64_t CpuProgram::EstimateWorkspace(const StepProgram& program, const ProgramOptions& options,
                                      int threads, const KernelTable& kernels, bool screened) {
  const InputBytes inputs = InputBytesOf(program, options, kernels, screened);
  int64_t bytes = 4 * ScratchFloats(program, options) * threads + inputs.tiles + inputs.quantised +
                  inputs.rounded + inputs.ordered;
  bytes += SamplerBytes(program, options.max_samples, threads);
  bytes += MoeWorkspace::Estimate(program, options.max_tokens, kernels.round != nullptr);
  bytes += 4 * LoraNeeds::Of(program, options).inner_floats;
  for (const Buffer& buffer : program.buffers) {
    bytes += 4 * BufferStride(buffer.width) * RowsOf(buffer, options);
  }
  for (const Rope& rope : program.ropes) {
    bytes += 4 * std::max<int64_t>(1, rope.rotary_dim) * options.max_tokens;
  }
  return bytes;
}

int64_t CpuProgram::EstimateShared(const StepProgram& program, const ProgramOptions& options) {
  const std::vector<bool> shared = SharedBuffers(program);
  int64_t bytes = 0;
  for (size_t id = 0; id < shared.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (shared[id]) bytes += 4 * BufferStride(buffer.width) * RowsOf(buffer, options);
  }
  return bytes;
}

void CpuProgram::PoisonPage(int32_t page) {
  std::memset(pages_.data() + page * kv_.page_bytes, 0xff, static_cast<size_t>(kv_.page_bytes));
}

void CpuProgram::PoisonWorkspace() {
  for (size_t id = 0; id < buffer_data_.size(); ++id) {
    std::memset(buffer_data_[id], 0xff, static_cast<size_t>(buffer_bytes_[id]));
  }
  for (Pages& angles : angles_) {
    std::memset(angles.data(), 0xff, static_cast<size_t>(angles.size()));
  }
  std::memset(scratch_.data(), 0xff, static_cast<size_t>(scratch_.size()));
  for (Pages* inputs : {&tiles_, &int8_rows_, &rounded_rows_, &ordered_rows_, &lora_inner_}) {
    if (inputs->size() > 0) std::memset(inputs->data(), 0xff, static_cast<size_t>(inputs->size()));
  }
  moe_.Poison();
}

}  // namespace quire::kernels::cpu
