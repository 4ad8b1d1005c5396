#include "kernels/cuda/backend/step_inputs.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/moe/grouped_product.h"
#include "kernels/cuda/ops/recurrent/state_pages.h"

namespace quire::kernels::cuda {
namespace {

constexpr int64_t kAlignWords = 4;  // lists begin on 16 bytes
// Rows of a bucket that begin a block are as a rule fewer than all, and a sequence that is new with
// many blocks brings a prompt along: a step with more goes without a graph.
constexpr int kChangesOfBucket = 16;  // beside one in each group for each row

int Ceil(int a, int b) { return (a + b - 1) / b; }

// Of layers of both kinds.
bool IsDecode(const BatchRow& row, const StepRules& rules) {
  const int heads = std::max(rules.heads_per_kv_head, rules.full_heads_per_kv_head);
  return row.token_count == 1 || row.token_count * heads <= kDecodeTileRows;
}
int PrefillQueries(int heads_per_kv_head) {
  return std::max(1, kPrefillTileRows / heads_per_kv_head);
}
int PrefillTiles(int tokens, int heads_per_kv_head) {
  return heads_per_kv_head == 0 ? 0 : Ceil(tokens, PrefillQueries(heads_per_kv_head));
}
// For so many tokens with adapters.
void SetLora(int tokens, const StepRules& rules, StepShape& shape) {
  if (tokens == 0 || rules.max_loras == 0) return;
  shape.lora_tokens = tokens;
  shape.lora_tile_rows = ExpertTileRows(tokens, rules.max_loras);
  shape.lora_tiles = MostExpertTiles(tokens, rules.max_loras, shape.lora_tile_rows);
}
int KeyGroups(const StepRules& rules) { return rules.groups - rules.state_groups; }

// Rows without slots stand alone: they bring their whole tables along.
bool StandsAlone(const StepBatch& batch) { return !batch.rows.empty() && batch.rows[0].slot < 0; }

}  // namespace

InputPlaces::InputPlaces(const StepShape& shape) {
  const auto take = [this](int64_t count) {
    const int64_t at = words;
    words += (count + kAlignWords - 1) / kAlignWords * kAlignWords;
    return at;
  };
  change_count = take(1);
  changes = take(shape.changes);
  change_pages = take(shape.changes);
  tokens = take(shape.tokens);
  positions = take(shape.tokens);
  pages = take(int64_t{shape.groups} * shape.tokens);
  sequences = take((int64_t{shape.slots} + 1) * 3);
  decode_tiles = take(int64_t{shape.decode_tiles} * 2);
  prefill_tiles = take(int64_t{shape.prefill_tiles} * 2);
  full_prefill_tiles = take(int64_t{shape.full_prefill_tiles} * 2);
  state_runs = take(int64_t{shape.state_runs} * 2);
  lora_tokens = take(shape.lora_tokens);
  lora_tiles = take(int64_t{shape.lora_tiles} * 3);
  lora_tile_count = take(shape.lora_tokens > 0 ? 1 : 0);
  samples = take(shape.samples);
  sample_slots = take(shape.samples);
}

StepShape ShapeOfStep(const StepBatch& batch, const StepRules& rules) {
  StepShape shape;
  shape.tokens = static_cast<int>(batch.tokens.size());
  shape.samples = static_cast<int>(batch.sampled_tokens.size());
  shape.groups = KeyGroups(rules);
  shape.slots = rules.slots;
  shape.changes = static_cast<int>(batch.table_changes.size());
  int adapted = 0;
  for (const BatchRow& row : batch.rows) {
    const int end = row.first_position + row.token_count;
    if (row.adapter >= 0) adapted += row.token_count;
    shape.max_spans = std::max(shape.max_spans, Ceil(end, kAttentionSpanKeys));
    if (StandsAlone(batch)) shape.changes += rules.groups * Ceil(end, rules.block_size);
    if (rules.state_groups > 0) {
      ++shape.state_rows;
      shape.state_runs += Ceil(row.token_count, kStateRun);
    }
    if (IsDecode(row, rules)) {
      ++shape.decode_tiles;
    } else {
      shape.prefill_tiles += PrefillTiles(row.token_count, rules.heads_per_kv_head);
      shape.full_prefill_tiles += PrefillTiles(row.token_count, rules.full_heads_per_kv_head);
    }
  }
  SetLora(adapted, rules, shape);
  return shape;
}

StepShape ShapeOfBucket(int rows, int max_spans, const StepRules& rules, bool adapters) {
  StepShape shape;
  shape.tokens = shape.samples = shape.decode_tiles = rows;
  if (rules.state_groups > 0) shape.state_rows = shape.state_runs = rows;
  shape.groups = KeyGroups(rules);
  shape.slots = rules.slots;
  shape.changes = rules.groups * rows + kChangesOfBucket;
  shape.max_spans = max_spans;
  if (adapters) SetLora(rows, rules, shape);
  return shape;
}

StepShape LargestShape(const StepRules& rules, const StepMost& most) {
  StepShape shape;
  shape.tokens = most.tokens;
  shape.samples = most.samples;
  shape.groups = KeyGroups(rules);
  shape.slots = rules.slots;
  shape.changes = rules.groups * rules.slots * rules.blocks + kChangesOfBucket;
  shape.max_spans = Ceil(most.max_positions, kAttentionSpanKeys);
  shape.decode_tiles = rules.slots;
  // Every row may end in a tile that is not full.
  const auto most_tiles = [&](int heads) {
    return heads == 0 ? 0 : most.tokens / PrefillQueries(heads) + rules.slots;
  };
  shape.prefill_tiles = most_tiles(rules.heads_per_kv_head);
  shape.full_prefill_tiles = most_tiles(rules.full_heads_per_kv_head);
  if (rules.state_groups > 0) {
    shape.state_rows = rules.slots;
    shape.state_runs = most.tokens / kStateRun + rules.slots;
  }
  if (rules.max_loras > 0) {
    shape.lora_tokens = most.tokens;
    // Narrow tiles are for few tokens: fewer than two for each adapter beside those that are full.
    shape.lora_tiles = std::min(most.tokens, 2 * rules.max_loras + most.tokens / 128);
  }
  return shape;
}

bool FitsBucket(const StepBatch& batch, const StepShape& step, const StepShape& bucket) {
  return step.tokens <= bucket.tokens && step.tokens == static_cast<int>(batch.rows.size()) &&
         step.samples <= bucket.samples && step.changes <= bucket.changes &&
         step.decode_tiles == step.tokens && step.max_spans <= bucket.max_spans &&
         step.lora_tokens <= bucket.lora_tokens;
}

namespace {

// Fills the lists of one step, row by row.
class Filler {
 public:
  Filler(const StepRules& rules, const StepShape& shape, std::span<int32_t> words)
      : rules_(rules), shape_(shape), places_(shape), words_(words.data()) {
    std::memset(At(places_.sequences), 0, 12 * (static_cast<size_t>(shape.slots) + 1));
  }

  void Change(const TableChange& change) {
    const int64_t row = int64_t{change.group} * rules_.slots + change.slot;
    *At(places_.changes + changes_) = static_cast<int32_t>(row * rules_.blocks + change.block);
    *At(places_.change_pages + changes_++) = change.page;
  }

  void Add(const BatchRow& row) {
    const int slot = row.slot >= 0 ? row.slot : row_;
    for (int group = 0; group < rules_.groups; ++group) {
      const std::span<const int32_t> table = row.block_tables[static_cast<size_t>(group)];
      int32_t* pages = At(places_.pages + int64_t{group} * shape_.tokens + row.first_token);
      for (int i = 0; i < row.token_count && group < shape_.groups; ++i) {
        pages[i] = table[static_cast<size_t>((row.first_position + i) / rules_.block_size)];
      }
      if (row.slot >= 0) continue;
      const int blocks = Ceil(row.first_position + row.token_count, rules_.block_size);
      for (int block = 0; block < blocks; ++block) {
        Change({slot, group, block, table[static_cast<size_t>(block)]});
      }
    }
    static_assert(sizeof(AttentionSequence) == 12);
    const AttentionSequence sequence{row.first_token, row.token_count, row.first_position};
    std::memcpy(At(places_.sequences + int64_t{slot} * 3), &sequence, sizeof(sequence));
    if (IsDecode(row, rules_)) {
      AddTile(places_.decode_tiles, decode_++, {slot, 0});
    } else {
      AddPrefill(row, slot, {places_.prefill_tiles, rules_.heads_per_kv_head}, prefill_);
      AddPrefill(row, slot, {places_.full_prefill_tiles, rules_.full_heads_per_kv_head}, full_);
    }
    if (rules_.state_groups > 0) AddStateRuns(row, slot);
    ++row_;
  }

  // The tokens of rows with adapters, by adapter, and the tiles that they make.
  void AddAdapters(std::span<const BatchRow> rows) {
    if (shape_.lora_tokens == 0) return;
    std::vector<const BatchRow*> adapted;
    for (const BatchRow& row : rows) {
      if (row.adapter >= 0) adapted.push_back(&row);
    }
    std::ranges::stable_sort(adapted, {}, &BatchRow::adapter);
    int count = 0;
    int tiles = 0;
    ExpertTile tile{-1, 0, 0};
    const auto end_tile = [&] {
      if (tile.rows == 0) return;
      static_assert(sizeof(ExpertTile) == 12);
      std::memcpy(At(places_.lora_tiles + int64_t{tiles++} * 3), &tile, sizeof(tile));
    };
    for (const BatchRow* const row : adapted) {
      for (int i = 0; i < row->token_count; ++i) {
        if (tile.expert != row->adapter || tile.rows == shape_.lora_tile_rows) {
          end_tile();
          tile = {row->adapter, count, 0};
        }
        ++tile.rows;
        *At(places_.lora_tokens + count++) = row->first_token + i;
      }
    }
    end_tile();
    *At(places_.lora_tile_count) = tiles;
  }

  // The part of the shape that the batch leaves. A tile of no tokens reads and writes nothing;
  // padding tokens are appended to spare pages, each in its own place.
  void Pad(int tokens, int samples) {
    *At(places_.change_count) = changes_;
    for (int token = tokens; token < shape_.tokens; ++token) {
      *At(places_.tokens + token) = 0;
      *At(places_.positions + token) = token % rules_.block_size;
      for (int group = 0; group < shape_.groups; ++group) {
        *At(places_.pages + int64_t{group} * shape_.tokens + token) =
            rules_.spare_page + token / rules_.block_size;
      }
    }
    const AttentionTile padding{rules_.slots, 0};
    while (decode_ < shape_.decode_tiles) AddTile(places_.decode_tiles, decode_++, padding);
    while (prefill_ < shape_.prefill_tiles) AddTile(places_.prefill_tiles, prefill_++, padding);
    while (full_ < shape_.full_prefill_tiles) AddTile(places_.full_prefill_tiles, full_++, padding);
    for (int i = row_; i < shape_.state_rows; ++i) AddStateRun(i, {rules_.slots, 0});
    while (shape_.state_rows + further_runs_ < shape_.state_runs) {
      AddStateRun(shape_.state_rows + further_runs_++, {rules_.slots, 0});
    }
    for (int i = samples; i < shape_.samples; ++i) {
      *At(places_.samples + i) = 0;
      *At(places_.sample_slots + i) = -1;
    }
  }

  int32_t* At(int64_t place) { return words_ + place; }
  const InputPlaces& places() const { return places_; }

 private:
  void AddStateRuns(const BatchRow& row, int slot) {
    AddStateRun(row_, {slot, 0});
    for (int first = kStateRun; first < row.token_count; first += kStateRun) {
      AddStateRun(shape_.state_rows + further_runs_++, {slot, first});
    }
  }
  void AddStateRun(int index, const StateRun& run) {
    static_assert(sizeof(StateRun) == 8);
    std::memcpy(At(places_.state_runs + int64_t{index} * 2), &run, sizeof(run));
  }

  struct Tiles {
    int64_t place;
    int heads_per_kv_head;  // 0: there are none
  };
  void AddPrefill(const BatchRow& row, int slot, const Tiles& tiles, int& count) {
    if (tiles.heads_per_kv_head == 0) return;
    const int queries = PrefillQueries(tiles.heads_per_kv_head);
    for (int first = 0; first < row.token_count; first += queries) {
      AddTile(tiles.place, count++, {slot, first});
    }
  }
  void AddTile(int64_t place, int index, const AttentionTile& tile) {
    static_assert(sizeof(AttentionTile) == 8);
    std::memcpy(At(place + int64_t{index} * 2), &tile, sizeof(tile));
  }

  const StepRules& rules_;
  const StepShape& shape_;
  const InputPlaces places_;
  int32_t* words_;
  int row_ = 0;
  int changes_ = 0;
  int decode_ = 0;
  int prefill_ = 0;
  int full_ = 0;
  int further_runs_ = 0;  // of states, behind those that begin rows
};

void CopyWords(std::span<const int32_t> from, int32_t* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size_bytes());
}

}  // namespace

void FillInputs(const StepBatch& batch, const StepRules& rules, const StepShape& shape,
                std::span<int32_t> words) {
  Filler filler(rules, shape, words);
  const InputPlaces& places = filler.places();
  CopyWords(batch.tokens, filler.At(places.tokens));
  CopyWords(batch.positions, filler.At(places.positions));
  for (const TableChange& change : batch.table_changes) filler.Change(change);
  for (const BatchRow& row : batch.rows) filler.Add(row);
  filler.AddAdapters(batch.rows);
  CopyWords(batch.sampled_tokens, filler.At(places.samples));
  for (size_t i = 0; i < batch.sampled_tokens.size(); ++i) {
    const bool kept = i < batch.sample_slots.size();
    *filler.At(places.sample_slots + static_cast<int64_t>(i)) = kept ? batch.sample_slots[i] : -1;
  }
  filler.Pad(static_cast<int>(batch.tokens.size()), static_cast<int>(batch.sampled_tokens.size()));
}

}  // namespace quire::kernels::cuda
