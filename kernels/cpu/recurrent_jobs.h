// The jobs of recurrent layers, and where a row finds its state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/recurrent_ops.h"
#include "kernels/state_layout.h"
#include "kernels/step_batch.h"

namespace quire::kernels::cpu {

// The pages that hold one layer's units of a use.
struct StatePages {
  std::byte* pool = nullptr;
  int64_t page_bytes = 0;
  int block_size = 16;
  int first_group = 0;  // of the kind
  StatePart part;
};

// Where one unit of a row is, block by block. A template so that no two instruction sets share its
// code.
template <class V>
class StateOfRow {
 public:
  StateOfRow(const StatePages& pages, const BatchRow& row, int unit)
      : pages_(pages), row_(row), place_(pages.part.PlaceOf(unit)) {
    place_.group += pages.first_group;
  }

  // Before the row's first token; null: nothing was before it.
  const float* Before() const { return row_.first_position == 0 ? nullptr : At(Block(-1)); }
  // Behind token `i` of the row.
  float* Behind(int i) const { return At(Block(i)); }
  // The end of the tokens from `begin` on whose states have one place: only the last one's stays.
  int EndOfPlace(int begin) const {
    const std::span<const int32_t> table = Table();
    const int32_t page = table[static_cast<size_t>(Block(begin))];
    int64_t block = Block(begin);
    int end = begin;
    while (end < row_.token_count && table[static_cast<size_t>(block)] == page) {
      ++block;
      const int64_t next = block * pages_.block_size - row_.first_position;
      end = static_cast<int>(std::min<int64_t>(next, row_.token_count));
    }
    return end;
  }

 private:
  int64_t Block(int i) const { return (row_.first_position + i) / pages_.block_size; }
  std::span<const int32_t> Table() const {
    return row_.block_tables[static_cast<size_t>(place_.group)];
  }
  float* At(int64_t block) const {
    const int64_t page = Table()[static_cast<size_t>(block)];
    return reinterpret_cast<float*>(pages_.pool + page * pages_.page_bytes + place_.offset);
  }

  const StatePages& pages_;
  const BatchRow& row_;
  StatePart::Place place_;
};

struct ConvJob {
  const float* in = nullptr;
  int64_t in_stride = 0;
  int channels = 0;
  int taps = 0;
  const float* weight = nullptr;  // [taps, channels]
  const float* bias = nullptr;    // [channels] or null
  bool silu = false;
  bool gated = false;
  float* out = nullptr;
  int64_t out_stride = 0;
  StatePages pages;
  std::span<const BatchRow> rows;
};

struct RecurrenceJob {
  RecurrenceOp::Kind kind = RecurrenceOp::Kind::kGatedDelta;
  int key_heads = 0;
  bool tiled = false;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  const float* decay = nullptr;
  const float* bias = nullptr;
  const float* skip = nullptr;  // or null
  float* in = nullptr;
  int64_t in_stride = 0;
  int q = 0, k = 0, v = 0;  // their places in a row of `in`
  const float* gates = nullptr;
  int64_t gates_stride = 0;
  float* factors = nullptr;
  int64_t factors_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  StatePages pages;
  std::span<const BatchRow> rows;
};

// Sixteen values of one head of one row, over all of its tokens.
struct RecurrenceTask {
  int row = 0;
  int head = 0;
  int strip = 0;
};

struct GatedNormJob {
  const float* weight = nullptr;
  bool weight_per_group = false;  // [width], else [group]
  int width = 0;
  int group = 0;
  float epsilon = 0.0f;
  bool gate_first = false;
  const float* in = nullptr;
  int64_t in_stride = 0;
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct GateJob {
  int width = 0;
  const float* in = nullptr;
  int64_t in_stride = 0;
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

// Part of the table of an instruction set (kernel_table.h).
struct RecurrentKernels {
  // Units of kStateChannels channels of one row, all of its tokens.
  void (*causal_conv)(const ConvJob& job, int row, int unit_begin, int unit_end) = nullptr;
  // Lengths of q and k, and the factors of every head: before `recur`.
  void (*prepare)(const RecurrenceJob& job, int token_begin, int token_end) = nullptr;
  // `scratch` has RecurrenceScratchFloats.
  void (*recur)(const RecurrenceJob& job, const RecurrenceTask& task, float* scratch) = nullptr;
  void (*gated_norm)(const GatedNormJob& job, int row_begin, int row_end) = nullptr;
  void (*gate)(const GateJob& job, int row_begin, int row_end) = nullptr;
};

inline int64_t RecurrenceScratchFloats(int key_dim) { return int64_t{16} * key_dim; }

}  // namespace quire::kernels::cpu
