#include "kernels/cuda/backend/step_inputs.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/ops/attention.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kDecodeRows = 16;  // of a tile: queries times heads that share a KV head
constexpr int kPrefillRows = 64;
constexpr int64_t kAlignWords = 4;  // lists begin on 16 bytes

int Ceil(int a, int b) { return (a + b - 1) / b; }

bool IsDecode(const BatchRow& row, const StepRules& rules) {
  return row.token_count * rules.heads_per_kv_head <= kDecodeRows;
}
int PrefillQueries(const StepRules& rules) { return kPrefillRows / rules.heads_per_kv_head; }

}  // namespace

InputPlaces::InputPlaces(const StepShape& shape) {
  const auto take = [this](int64_t count) {
    const int64_t at = words;
    words += (count + kAlignWords - 1) / kAlignWords * kAlignWords;
    return at;
  };
  tokens = take(shape.tokens);
  positions = take(shape.tokens);
  pages = take(int64_t{shape.groups} * shape.tokens);
  tables = take(int64_t{shape.groups} * shape.rows * shape.blocks);
  sequences = take(int64_t{shape.rows} * 3);
  decode_tiles = take(int64_t{shape.decode_tiles} * 2);
  prefill_tiles = take(int64_t{shape.prefill_tiles} * 2);
  samples = take(shape.samples);
}

StepShape ShapeOfStep(const StepBatch& batch, const StepRules& rules) {
  StepShape shape;
  shape.tokens = static_cast<int>(batch.tokens.size());
  shape.rows = static_cast<int>(batch.rows.size());
  shape.samples = static_cast<int>(batch.sampled_tokens.size());
  shape.groups = rules.groups;
  for (const BatchRow& row : batch.rows) {
    const int end = row.first_position + row.token_count;
    shape.blocks = std::max(shape.blocks, Ceil(end, rules.block_size));
    shape.max_spans = std::max(shape.max_spans, Ceil(end, kAttentionSpanKeys));
    if (IsDecode(row, rules)) {
      ++shape.decode_tiles;
    } else {
      shape.prefill_tiles += Ceil(row.token_count, PrefillQueries(rules));
    }
  }
  return shape;
}

StepShape LargestShape(const StepRules& rules, const StepShape& limits, int max_positions) {
  StepShape shape = limits;
  shape.groups = rules.groups;
  shape.blocks = Ceil(max_positions, rules.block_size);
  shape.max_spans = Ceil(max_positions, kAttentionSpanKeys);
  shape.decode_tiles = limits.rows;
  // Every row may end in a tile that is not full.
  shape.prefill_tiles = limits.tokens / PrefillQueries(rules) + limits.rows;
  return shape;
}

namespace {

// Fills the lists of one step, row by row.
class Filler {
 public:
  Filler(const StepRules& rules, const StepShape& shape, std::span<int32_t> words)
      : rules_(rules), shape_(shape), places_(shape), words_(words.data()) {}

  void Add(const BatchRow& row) {
    for (int group = 0; group < rules_.groups; ++group) {
      const std::span<const int32_t> table = row.block_tables[static_cast<size_t>(group)];
      const auto blocks = std::min(table.size(), static_cast<size_t>(shape_.blocks));
      std::memcpy(Table(group), table.data(), 4 * blocks);
      int32_t* pages = words_ + places_.pages + int64_t{group} * shape_.tokens + row.first_token;
      for (int i = 0; i < row.token_count; ++i) {
        pages[i] = table[static_cast<size_t>((row.first_position + i) / rules_.block_size)];
      }
    }
    AddSequence({row.first_token, row.token_count, row.first_position});
    if (IsDecode(row, rules_)) {
      AddTile(places_.decode_tiles, decode_++, 0);
    } else {
      for (int first = 0; first < row.token_count; first += PrefillQueries(rules_)) {
        AddTile(places_.prefill_tiles, prefill_++, first);
      }
    }
    ++row_;
  }

  int32_t* At(int64_t place) { return words_ + place; }
  const InputPlaces& places() const { return places_; }

 private:
  int32_t* Table(int group) {
    return words_ + places_.tables + (int64_t{group} * shape_.rows + row_) * shape_.blocks;
  }
  void AddSequence(const AttentionSequence& sequence) {
    static_assert(sizeof(AttentionSequence) == 12);
    std::memcpy(words_ + places_.sequences + int64_t{row_} * 3, &sequence, sizeof(sequence));
  }
  void AddTile(int64_t place, int index, int first_query) {
    static_assert(sizeof(AttentionTile) == 8);
    const AttentionTile tile{row_, first_query};
    std::memcpy(words_ + place + int64_t{index} * 2, &tile, sizeof(tile));
  }

  const StepRules& rules_;
  const StepShape& shape_;
  const InputPlaces places_;
  int32_t* words_;
  int row_ = 0;
  int decode_ = 0;
  int prefill_ = 0;
};

}  // namespace

void FillInputs(const StepBatch& batch, const StepRules& rules, const StepShape& shape,
                std::span<int32_t> words) {
  Filler filler(rules, shape, words);
  std::memcpy(filler.At(filler.places().tokens), batch.tokens.data(), 4 * batch.tokens.size());
  std::memcpy(filler.At(filler.places().positions), batch.positions.data(),
              4 * batch.positions.size());
  for (const BatchRow& row : batch.rows) filler.Add(row);
  std::memcpy(filler.At(filler.places().samples), batch.sampled_tokens.data(),
              4 * batch.sampled_tokens.size());
}

}  // namespace quire::kernels::cuda
