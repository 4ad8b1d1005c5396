// Compiled for AVX2 and fma, which every served host has; arithmetic.h defines the arithmetic.
#include "kernels/sampling/row_changes.h"

#include <algorithm>

#include "kernels/sampling/scan.h"

namespace quire::kernels::sampling {
namespace {

constexpr int64_t kMostBiases = 1024;  // of a row; more of them would only cost an allocation

// The logit of an id, or null when it is not of this row.
float* Find(std::span<float> z, int32_t first, int32_t id) {
  const int64_t at = int64_t{id} - first;
  return at >= 0 && at < static_cast<int64_t>(z.size()) ? &z[static_cast<size_t>(at)] : nullptr;
}

}  // namespace

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

namespace {

bool ChangesValues(const SampleRow& row) {
  return !row.banned_ids.empty() || !row.logit_bias.empty() ||
         (HasPenalties(row) && !row.token_counts.empty());
}

}  // namespace

bool ChangesLogits(const SampleRow& row) { return !row.allowed_mask.empty() || ChangesValues(row); }

bool OnlyMasks(const SampleRow& row) { return !row.allowed_mask.empty() && !ChangesValues(row); }

void ChangeLogits(std::span<float> z, int32_t first, const SampleRow& row) {
  if (!row.allowed_mask.empty()) ForbidOutsideMask(z, first, row.allowed_mask);
  for (const int32_t id : row.banned_ids) {
    if (float* logit = Find(z, first, id)) *logit = kImpossible;
  }
  for (const TokenBias& bias : row.logit_bias) {
    if (float* logit = Find(z, first, bias.id)) *logit += bias.bias;
  }
  if (!HasPenalties(row)) return;
  for (const TokenCount& count : row.token_counts) {
    float* logit = Find(z, first, count.id);
    if (logit == nullptr) continue;
    *logit = Penalise(*logit, count.output_count, row.repetition_penalty, row.frequency_penalty,
                      row.presence_penalty);
  }
}

void RowChanges::Reserve(int64_t tokens) {
  raw_biased_.reserve(static_cast<size_t>(std::min(tokens, kMostBiases)));
  raw_counted_.reserve(static_cast<size_t>(tokens));
}

int64_t RowChanges::ReservedBytes(int64_t tokens) {
  return (std::min(tokens, kMostBiases) + tokens) * int64_t{sizeof(float)};
}

void RowChanges::KeepRaw(std::span<const float> z, int32_t first, const SampleRow& row) {
  const auto keep = [&](const auto& list, std::vector<float>& raw) {
    raw.clear();
    for (const auto& entry : list) {
      const int64_t at = int64_t{entry.id} - first;
      const bool inside = at >= 0 && at < static_cast<int64_t>(z.size());
      raw.push_back(inside ? z[static_cast<size_t>(at)] : 0.0f);
    }
  };
  keep(row.logit_bias, raw_biased_);
  keep(HasPenalties(row) ? row.token_counts : std::span<const TokenCount>(), raw_counted_);
}

float RowChanges::RawOf(std::span<const float> z, int32_t first, const SampleRow& row,
                        int32_t id) const {
  const auto find = [id](const auto& list, const std::vector<float>& raw) -> const float* {
    const auto at =
        std::lower_bound(list.begin(), list.end(), id,
                         [](const auto& entry, int32_t wanted) { return entry.id < wanted; });
    if (at == list.end() || at->id != id || raw.empty()) return nullptr;
    return &raw[static_cast<size_t>(at - list.begin())];
  };
  if (const float* raw = find(row.logit_bias, raw_biased_)) return *raw;
  if (const float* raw = find(row.token_counts, raw_counted_)) return *raw;
  return z[static_cast<size_t>(id - first)];
}

}  // namespace quire::kernels::sampling
