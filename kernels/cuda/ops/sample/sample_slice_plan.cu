// The rounds of rows, and their messages: by the host, from the parameters of the rows alone.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "kernels/cuda/ops/sample/sample_message.h"

namespace quire::kernels::cuda {

namespace {

// The rounds of a row, in their order.
struct StageList {
  SliceRow& row;
  int count = 0;

  void Add(int stage) { row.stages[count++] = static_cast<uint8_t>(stage); }
  void AddCut(CutKind kind) {
    for (int digit = 0; digit < kOrderDigits; ++digit) {
      Add(kDigits + kOrderDigits * static_cast<int>(kind) + digit);
    }
  }
};

// Returns how many rounds there are.
int PlanRounds(const SampleRow& row, bool changes, SliceRow& plan) {
  StageList stages{plan};
  stages.Add(kPeaks);
  if (row.scored_token >= 0) {
    stages.Add(kRaw);
    return stages.count;
  }
  // Reports about the raw row go with the round after the peaks; where the row is changed only
  // then, the peak of the changed row needs a round too.
  if (row.logprobs > 0 && (changes || IsGreedy(row))) stages.Add(kRaw);
  if (IsGreedy(row)) return stages.count;
  if (row.top_k > 0 && row.top_k <= kMostSliceTokens) {
    stages.Add(kTokens);
    return stages.count;
  }
  if (row.top_k > 0) stages.AddCut(CutKind::kTopK);
  if (row.top_p < 1.0f) stages.AddCut(CutKind::kTopP);
  if (row.typical_p < 1.0f) {
    stages.Add(kMean);
    stages.AddCut(CutKind::kTypical);
  }
  stages.Add(kBest);
  return stages.count;
}

constexpr int RoundUp16(size_t bytes) { return static_cast<int>((bytes + 15) / 16 * 16); }

// Bytes of a message behind its head.
int BodyBytes(const SampleRow& row, int stage) {
  if (stage >= kDigits) return kHistogramBytes;
  return stage == kTokens ? RoundUp16(static_cast<size_t>(row.top_k) * sizeof(SliceToken)) : 0;
}
int TopBytes(const SampleRow& row, int round) {
  const int top = round == 1 ? std::clamp(row.logprobs - 1, 0, kMaxTopLogprobs) : 0;
  return RoundUp16(static_cast<size_t>(top) * sizeof(SliceTop));
}

// `plans` are in the order of positions, `needed` are their numbers of rounds.
SliceRounds PlanMessages(std::span<const SampleRow> rows, std::span<const SliceRow> plans,
                         std::span<const int> needed) {
  SliceRounds rounds;
  rounds.count = needed.empty() ? 0 : needed[0];
  for (int r = 0; r < rounds.count; ++r) {
    SliceRound& round = rounds.of[static_cast<size_t>(r)];
    int body = 0;
    int top = 0;
    for (size_t i = 0; i < plans.size() && needed[i] > r; ++i) {
      const SampleRow& row = rows[static_cast<size_t>(plans[i].row)];
      body = std::max(body, BodyBytes(row, plans[i].stages[r]));
      top = std::max(top, TopBytes(row, r));
      ++round.rows;
    }
    round.body_at = sizeof(SliceHead);
    round.top_at = round.body_at + body;
    round.stride = round.top_at + top;
  }
  return rounds;
}

}  // namespace

size_t PackedSliceRowsBytes(std::span<const SampleRow> rows) {
  return PackedSampleRowsBytes(rows) + rows.size() * sizeof(SliceRow);
}

SliceRounds PackSliceRows(std::span<const SampleRow> rows, void* host, void* device) {
  PackSampleRows(rows, host, device);
  const auto* packed = static_cast<const DeviceSampleRow*>(host);
  std::vector<SliceRow> plans(rows.size());
  std::vector<int> needed(rows.size());
  std::vector<size_t> order(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    plans[i].row = static_cast<int32_t>(i);
    needed[i] = PlanRounds(rows[i], packed[i].changes != 0, plans[i]);
  }
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return needed[a] > needed[b]; });
  std::vector<SliceRow> sorted;
  for (const size_t i : order) sorted.push_back(plans[i]);
  std::stable_sort(needed.begin(), needed.end(), std::greater<>());
  SliceRounds rounds = PlanMessages(rows, sorted, needed);
  rounds.rows_at = PackedSampleRowsBytes(rows);
  memcpy(static_cast<std::byte*>(host) + rounds.rows_at, sorted.data(),
         sorted.size() * sizeof(SliceRow));
  return rounds;
}

}  // namespace quire::kernels::cuda
