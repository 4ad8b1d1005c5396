// The tag model's kernels, in the place of attention, products and recurrences: this file is linked
// instead of attention.cu, gemm.cu and recurrence.cu of kernels/cuda/ops. All else of a step is the
// backend's own.
//
// A token's number comes in the first element of its query, which an embedding and a product have
// brought there. Attention writes the tags of new tokens into their pages, reads all that a token
// sees back through the block table, and leaves what it saw as eight digits of bfloat16 in its
// output; the next group's attention goes on from there, and so does a recurrence, whose state is
// the tag of a sequence's last token. The head turns digits into logits.
#include "kernels/cuda/device/kernel.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/recurrent/recurrence.h"
#include "tests/support/tag_arithmetic.h"
#include "tests/support/tag_cuda/tag_runtime.h"

namespace quire::kernels::cuda {

using namespace device;  // NOLINT: a kernel file's vocabulary
using test::TagPages;
using test::TagRuntime;
using test::TagSlot;

constexpr int kDigits = 8;  // of 8 bits, exact in bfloat16
constexpr uint16_t kNaN = 0x7fc0;

struct TagAttentionParams {
  AttentionParams attention;
  int tiles = 0;
  int group = 0;
  TagPages pages;
  const TagSlot* slots = nullptr;
  uint64_t* fault = nullptr;
};

// The tag of one sequence's key; null, and the fault is told, where there is no page.
QUIRE_DEVICE uint64_t* TagAt(const TagAttentionParams& params, int slot, int64_t position) {
  const AttentionParams& attention = params.attention;
  const int64_t block = position >> attention.block_shift;
  const int32_t page =
      attention.block_tables[static_cast<int64_t>(slot) * attention.block_table_stride + block];
  if (page < 0 || block >= attention.block_table_stride) {
    *params.fault = 1;
    return nullptr;
  }
  const int64_t in_page = position & ((int64_t{1} << attention.block_shift) - 1);
  return reinterpret_cast<uint64_t*>(const_cast<std::byte*>(
      params.pages.values + page * params.pages.page_bytes + in_page * params.pages.token_bytes));
}

QUIRE_DEVICE uint64_t ReadTag(const TagAttentionParams& params, int slot, int64_t position) {
  const uint64_t* at = TagAt(params, slot, position);
  if (at == nullptr || *at == test::kNoTag) {
    *params.fault = 1;
    return 0;
  }
  return *at;
}

QUIRE_DEVICE uint64_t ReadDigits(const uint16_t* from) {
  uint64_t x = 0;
  for (int i = 0; i < kDigits; ++i) {
    x |= static_cast<uint64_t>(ToFloat(Bf16{from[i]})) << (8 * i);
  }
  return x;
}

QUIRE_DEVICE void WriteDigits(uint64_t x, uint16_t* to) {
  for (int i = 0; i < kDigits; ++i) to[i] = Bf16Bits(static_cast<float>(x >> (8 * i) & 255u));
}

QUIRE_DEVICE void Attend(const TagAttentionParams& params, int slot, const AttentionSequence& row,
                         int query) {
  const AttentionParams& attention = params.attention;
  const int64_t position = row.first_position + query;
  const int64_t token = row.first_token + query;
  const auto id = static_cast<int32_t>(ToFloat(Bf16{attention.q[token * attention.q_stride]}));
  const uint64_t previous =
      position == 0 ? test::TagRoot(params.slots[slot].salt) : ReadTag(params, slot, position - 1);
  uint64_t* own = TagAt(params, slot, position);
  if (own != nullptr) *own = test::TagOf(previous, id, position, params.group);
  uint16_t* out = attention.out + token * kDigits;
  if (params.slots[slot].fails != 0) {
    for (int i = 0; i < kDigits; ++i) out[i] = kNaN;
    return;
  }
  uint64_t seen = params.group == 0 ? 1 : ReadDigits(out);
  const int64_t behind = position - attention.window + 1;
  for (int64_t key = attention.window > 0 && behind > 0 ? behind : 0; key <= position; ++key) {
    seen = test::TagSeen(seen, ReadTag(params, slot, key));
  }
  WriteDigits(seen, out);
}

struct TagRecurrenceParams {
  RecurrenceParams op;
  uint16_t* seen = nullptr;  // [tokens][kDigits]
  int group = 0;             // of the first state
  const TagSlot* slots = nullptr;
  uint64_t* fault = nullptr;
};

// A state fills its page: 64 bits of it again and again.
QUIRE_DEVICE void Recur(const TagRecurrenceParams& params, int slot, const AttentionSequence& row) {
  const int group = params.group + params.op.pages.part.group;
  const UnitOfRow unit = UnitOf(params.op.pages, row, slot, 0);
  uint64_t state = test::TagRoot(params.slots[slot].salt);
  if (row.first_position > 0) {
    const int32_t page = unit.table[unit.BlockOf(-1)];
    state = page < 0 ? test::kNoTag : *reinterpret_cast<const uint64_t*>(unit.Before());
    if (state == test::kNoTag) *params.fault = 1;
  }
  for (int i = 0; i < row.token_count; ++i) {
    const int64_t token = row.first_token + i;
    const auto id = static_cast<int32_t>(params.op.in[token * params.op.in_stride]);
    state = test::TagOf(state, id, row.first_position + i, group);
    if (params.slots[slot].fails == 0) {
      uint16_t* digits = params.seen + token * kDigits;
      WriteDigits(test::TagSeen(ReadDigits(digits), state), digits);
    }
    if (!unit.Stays(i)) continue;
    if (unit.table[unit.BlockOf(i)] < 0) {
      *params.fault = 1;
      continue;
    }
    auto* to = reinterpret_cast<uint64_t*>(unit.Behind(i));
    for (int64_t word = 0; word < params.op.pages.page_bytes / 8; ++word) to[word] = state;
  }
}

QUIRE_KERNEL(tag_recurrence, TagRecurrenceParams, 32, 1) {
  if (ThreadIndex() != 0) return;
  for (int i = 0; i < params.op.runs.rows; ++i) {
    const int slot = params.op.runs.runs[i].sequence;
    Recur(params, slot, params.op.runs.sequences[slot]);
  }
}

// One thread, one sequence after another: a tag needs the one before it.
QUIRE_KERNEL(tag_attention, TagAttentionParams, 32, 1) {
  if (ThreadIndex() != 0) return;
  for (int tile = 0; tile < params.tiles; ++tile) {
    const AttentionTile& first = params.attention.tiles[tile];
    if (first.first_query != 0) continue;
    const AttentionSequence& row = params.attention.sequences[first.sequence];
    for (int query = 0; query < row.token_count; ++query) {
      Attend(params, first.sequence, row, query);
    }
  }
}

// Products of small whole numbers, exact in any order.
QUIRE_KERNEL(tag_product, GemmParams, 32, 1) {
  const int64_t m = BlockX();
  for (int n = ThreadIndex(); n < params.n; n += BlockThreads()) {
    float sum = 0.0f;
    for (int k = 0; k < params.k; ++k) {
      const int64_t at = static_cast<int64_t>(n) * params.k + k;
      sum = Fma(ToFloat(Bf16{params.x[m * params.k + k]}), ToFloat(Bf16{params.weight[at]}), sum);
    }
    const int64_t to = m * params.out_stride + n;
    if (params.out_float32) {
      static_cast<float*>(params.out)[to] = sum;
    } else {
      static_cast<uint16_t*>(params.out)[to] = Bf16Bits(sum);
    }
  }
}

// The rows of logits; one with a NaN where the digits are none.
QUIRE_KERNEL(tag_logits, GemmParams, 32, 1) {
  const int64_t m = BlockX();
  const uint16_t* digits = params.x + m * params.k;
  const float first = ToFloat(Bf16{digits[0]});
  const bool fails = first != first;  // whichever NaN rounding has made of it
  const int first_id = static_cast<int>(-params.scale) - 1;  // of this rank
  const uint64_t seen = fails ? 0 : ReadDigits(digits);
  for (int id = ThreadIndex(); id < params.n; id += BlockThreads()) {
    float logit = test::TagLogit(seen, first_id + id);
    if (fails && id == 0) logit = first;
    static_cast<float*>(params.out)[m * params.out_stride + id] = logit;
  }
}

size_t AttentionWorkspaceBytes(const AttentionPlan&, int, int) { return 0; }

runtime::Error LaunchAttention(runtime::Runtime& runtime, runtime::StreamId stream, int head_dim,
                               const AttentionPlan& plan, AttentionParams params) {
  if (head_dim != kDigits) return "tag_attention: heads of another size";
  if (plan.tile_count == 0) return {};
  auto& device = static_cast<TagRuntime&>(runtime);
  TagAttentionParams tags;
  tags.attention = params;
  tags.tiles = plan.tile_count;
  tags.group = static_cast<int>(params.scale);  // the program says it so
  device.pages = {static_cast<const std::byte*>(params.values), 2 * params.page_stride,
                  2 * int64_t{params.token_stride}};
  tags.pages = device.pages;
  device.seen = params.out;
  tags.slots = device.slots;
  tags.fault = device.fault;
  return runtime.Launch(stream, QUIRE_KERNEL_OF(tag_attention, 32),
                        runtime::ShapeOf(1, 1, 0, tags));
}

runtime::Error LaunchRecurrence(runtime::Runtime& runtime, runtime::StreamId stream,
                                const RecurrenceParams& params) {
  if (params.runs.rows == 0) return {};
  auto& device = static_cast<TagRuntime&>(runtime);
  const TagRecurrenceParams tags{params, device.seen, device.first_state_group, device.slots,
                                 device.fault};
  return runtime.Launch(stream, QUIRE_KERNEL_OF(tag_recurrence, 32),
                        runtime::ShapeOf(1, 1, 0, tags));
}

int GemmSplits(int, int) { return 1; }
size_t GemmWorkspaceBytes(int, int, int, int) { return 0; }
size_t GemmCounters(int, int) { return 1; }

// The head is the product that is negated.
runtime::Error LaunchGemm(runtime::Runtime& runtime, runtime::StreamId stream, GemmParams params) {
  if (params.accumulate || params.bias != nullptr) return "tag_product: of products alone";
  if (params.out_stride == 0) params.out_stride = params.n;
  if (params.m <= 0) return {};
  return runtime.Launch(
      stream, params.scale < 0 ? QUIRE_KERNEL_OF(tag_logits, 32) : QUIRE_KERNEL_OF(tag_product, 32),
      runtime::ShapeOf(static_cast<uint32_t>(params.m), 1, 0, params));
}

}  // namespace quire::kernels::cuda
