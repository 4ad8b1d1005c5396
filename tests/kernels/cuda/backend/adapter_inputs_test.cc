// What steps with adapters are given: matrices where a slot's places say, tokens by adapter, and
// room for every step.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/cuda/backend/adapter_places.h"
#include "kernels/cuda/backend/step_inputs.h"
#include "kernels/cuda/ops/moe/route.h"

namespace quire::kernels::cuda {
namespace {

constexpr int kRank = 8;
constexpr int kWidth = 16;

float Bf16At(const std::vector<std::byte>& slot, size_t at) {
  uint16_t bits = 0;
  memcpy(&bits, slot.data() + at, 2);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Modules of these widths side by side, of which the second is left alone.
class AdapterPlacesTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  AdapterPlacesTest() {
    LoraStep step;
    step.op.in = 0;
    step.op.out = 1;
    int column = 0;
    for (const int width : GetParam()) {
      step.op.slices.push_back({static_cast<int>(step.widths.size()), column});
      step.widths.push_back(width);
      column += width;
    }
    lowered_.buffers = {{"in", kWidth}, {"out", (column + 7) / 8 * 8}};
    lowered_.steps.emplace_back(step);
    columns_ = column;
    for (size_t i = 0; i < GetParam().size(); ++i) {
      AdapterMatrices& own = adapter_.targets.emplace_back();
      if (i == 1) continue;
      const int64_t rank = i == 0 ? kRank : 3;  // a smaller one is padded
      own.a = Matrix(rank, kWidth);
      own.b = Matrix(GetParam()[i], rank);
      own.scale = 0.5f;
    }
  }

  // Small whole numbers, which bfloat16 holds.
  WeightSource Matrix(int64_t rows, int64_t cols) {
    std::vector<float>& numbers = memory_.emplace_back();
    for (int64_t i = 0; i < rows * cols; ++i)
      numbers.push_back(static_cast<float>(seed_++ % 7) - 3);
    return {DType::kF32, rows, cols, reinterpret_cast<const std::byte*>(numbers.data())};
  }

  // B · A of the adapter, by column of `out` and of `in`.
  std::vector<float> Wanted() const {
    std::vector<float> dense(static_cast<size_t>(columns_) * kWidth);
    int column = 0;
    for (size_t i = 0; i < GetParam().size(); ++i) {
      const AdapterMatrices& own = adapter_.targets[i];
      const auto* a = reinterpret_cast<const float*>(own.a.data);
      const auto* b = reinterpret_cast<const float*>(own.b.data);
      for (int64_t n = 0; n < own.b.rows; ++n) {
        for (int64_t k = 0; k < kWidth; ++k) {
          float& sum = dense[static_cast<size_t>((column + n) * kWidth + k)];
          for (int64_t r = 0; r < own.a.rows; ++r) {
            sum += own.scale * b[n * own.a.rows + r] * a[r * kWidth + k];
          }
        }
      }
      column += GetParam()[i];
    }
    return dense;
  }

  DeviceProgram lowered_;
  Adapter adapter_;
  int columns_ = 0;

 private:
  std::vector<std::vector<float>> memory_;
  int seed_ = 1;
};

TEST_P(AdapterPlacesTest, TheLaunchesOfASlotMultiplyWhatTheAdapterHas) {
  const AdapterPlan plan = PlanAdapters(lowered_, kRank);
  ASSERT_EQ(plan.steps.size(), 1u);
  const AdapterPlaces& places = plan.steps[0];
  std::vector<std::byte> slot(plan.slot_bytes, std::byte{0x55});
  PackAdapter(adapter_, lowered_, plan, slot);
  std::vector<float> dense(static_cast<size_t>(columns_) * kWidth);
  size_t slices = 0;
  for (const AdapterPlaces::Run& run : places.runs) {
    EXPECT_EQ(run.column % 8, 0);
    EXPECT_EQ(run.rows % 8, 0);
    EXPECT_TRUE(run.count == 1 || run.joined == 1);
    slices += static_cast<size_t>(run.count * run.joined);
    const int depth = run.joined * plan.rank;
    for (int i = 0; i < run.count; ++i) {
      for (int n = 0; n < run.rows; ++n) {
        const int column = run.column + i * run.rows + n;
        for (int k = 0; k < kWidth && column < columns_; ++k) {
          for (int r = 0; r < depth; ++r) {
            const size_t b = run.b + 2 * ((static_cast<size_t>(i) * run.rows + n) * depth + r);
            const size_t a =
                places.a + 2 * (static_cast<size_t>((run.first + i) * plan.rank + r) * kWidth + k);
            dense[static_cast<size_t>(column) * kWidth + k] += Bf16At(slot, b) * Bf16At(slot, a);
          }
        }
      }
    }
  }
  EXPECT_EQ(slices, GetParam().size());
  EXPECT_EQ(dense, Wanted());
}

INSTANTIATE_TEST_SUITE_P(Widths, AdapterPlacesTest,
                         testing::Values(std::vector<int>{24}, std::vector<int>{16, 16, 8},
                                         std::vector<int>{16, 8, 4, 4},
                                         std::vector<int>{16, 12, 4, 8},
                                         std::vector<int>{4, 4, 4, 3}));

StepBatch BatchOf(const std::vector<BatchRow>& rows, std::vector<int32_t>& tokens) {
  int count = 0;
  for (const BatchRow& row : rows) count += row.token_count;
  tokens.assign(static_cast<size_t>(count), 1);
  StepBatch batch;
  batch.rows = rows;
  batch.tokens = batch.positions = tokens;
  return batch;
}

// Rows in slots, with pages for all of them.
std::vector<BatchRow> RowsOf(const std::vector<std::pair<int, int>>& adapters_and_tokens,
                             const std::vector<std::span<const int32_t>>& tables) {
  std::vector<BatchRow> rows;
  int first = 0;
  for (const auto& [adapter, count] : adapters_and_tokens) {
    BatchRow row;
    row.first_token = first;
    row.token_count = count;
    row.slot = static_cast<int>(rows.size());
    row.adapter = adapter;
    row.block_tables = tables;
    rows.push_back(row);
    first += count;
  }
  return rows;
}

TEST(AdapterInputs, TokensAreListedByAdapter) {
  StepRules rules;
  rules.slots = 8;
  rules.blocks = 8;
  rules.max_loras = 3;
  const std::vector<int32_t> pages(8, 0);
  const std::vector<std::span<const int32_t>> tables = {pages};
  const auto rows = RowsOf({{2, 3}, {-1, 2}, {0, 11}, {2, 1}, {-1, 1}, {0, 1}}, tables);
  std::vector<int32_t> tokens;
  const StepBatch batch = BatchOf(rows, tokens);
  const StepShape shape = ShapeOfStep(batch, rules);
  ASSERT_EQ(shape.lora_tokens, 16);
  const InputPlaces places(shape);
  std::vector<int32_t> words(static_cast<size_t>(places.words));
  FillInputs(batch, rules, shape, words);
  const auto at = words.begin();
  EXPECT_EQ(std::vector<int32_t>(at + places.lora_tokens, at + places.lora_tokens + 16),
            (std::vector<int32_t>{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 18, 0, 1, 2, 16}));
  const int count = words[static_cast<size_t>(places.lora_tile_count)];
  ASSERT_LE(count, shape.lora_tiles);
  int covered = 0;
  for (int i = 0; i < count; ++i) {
    ExpertTile tile;
    memcpy(static_cast<void*>(&tile), words.data() + places.lora_tiles + 3 * i, sizeof(tile));
    EXPECT_EQ(tile.first, covered);
    EXPECT_LE(tile.rows, shape.lora_tile_rows);
    EXPECT_EQ(tile.expert, covered < 12 ? 0 : 2);
    EXPECT_LE(covered < 12 ? tile.first + tile.rows : 0, 12) << "a tile of two adapters";
    covered += tile.rows;
  }
  EXPECT_EQ(covered, 16);
}

TEST(AdapterInputs, AProgramWithoutSlotsListsNone) {
  StepRules rules;
  rules.slots = 2;
  rules.blocks = 8;
  const std::vector<int32_t> pages(8, 0);
  const std::vector<std::span<const int32_t>> tables = {pages};
  const auto rows = RowsOf({{0, 3}, {-1, 2}}, tables);
  std::vector<int32_t> tokens;
  const StepShape shape = ShapeOfStep(BatchOf(rows, tokens), rules);
  EXPECT_EQ(shape.lora_tokens, 0);
  EXPECT_EQ(shape.lora_tiles, 0);
}

TEST(AdapterInputs, TheLargestShapeHasRoomForEveryStep) {
  const std::vector<int32_t> pages(1024, 0);
  const std::vector<std::span<const int32_t>> tables = {pages};
  for (const int loras : {1, 2, 7, 8, 64, 4096}) {
    StepRules rules;
    rules.slots = 1;
    rules.blocks = 1024;
    rules.max_loras = loras;
    for (const int most : {1, 16, 300, 8192}) {
      const StepShape largest = LargestShape(rules, {most, 1, most});
      for (int count = 1; count <= most; count += 1 + count / 9) {
        const auto rows = RowsOf({{0, count}}, tables);
        std::vector<int32_t> tokens;
        const StepShape shape = ShapeOfStep(BatchOf(rows, tokens), rules);
        ASSERT_LE(shape.lora_tokens, largest.lora_tokens);
        ASSERT_LE(shape.lora_tiles, largest.lora_tiles) << loras << " " << count;
      }
    }
  }
}

TEST(AdapterInputs, AStepWithAdaptersTakesABucketThatHasThem) {
  StepRules rules;
  rules.slots = 4;
  rules.blocks = 8;
  rules.max_loras = 2;
  const std::vector<int32_t> pages(8, 0);
  const std::vector<std::span<const int32_t>> tables = {pages};
  std::vector<int32_t> tokens;
  for (const int adapter : {-1, 1}) {
    const auto rows = RowsOf({{-1, 1}, {adapter, 1}}, tables);
    const StepBatch batch = BatchOf(rows, tokens);
    const StepShape step = ShapeOfStep(batch, rules);
    EXPECT_EQ(FitsBucket(batch, step, ShapeOfBucket(2, 1, rules)), adapter < 0);
    EXPECT_TRUE(FitsBucket(batch, step, ShapeOfBucket(2, 1, rules, true)));
  }
}

}  // namespace
}  // namespace quire::kernels::cuda
