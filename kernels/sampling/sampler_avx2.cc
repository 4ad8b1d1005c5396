// Compiled for AVX2 and fma, which every served host has; the arithmetic is that of arithmetic.h.
#include <algorithm>
#include <cmath>

#include "kernels/sampling/sampler.h"

namespace quire::kernels::sampling {
namespace {

// Below these distances from the peak lies less and less of the mass: how deep a cut by mass is
// looked for before the whole row is.
constexpr float kDepths[] = {-6.0f, -12.0f};
// The same for a cut to what is typical, to both sides of the mean.
constexpr float kWidths[] = {2.0f, 6.0f};

constexpr size_t kMostBiases = 1024;  // of a row; more of them would only cost an allocation

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

// A logit that no token has whose distance is `distance` or more: a little lower than the exact
// one, so that rounding leaves none out.
float LogitAtDepth(float peak, float distance, float temperature) {
  const double below = static_cast<double>(distance) * temperature;
  const double least = static_cast<double>(peak) + below * 1.000002;
  return static_cast<float>(least - 1e-6 * std::fabs(least) - 1e-30);
}

uint64_t WeighAll(Candidates& c) {
  uint64_t total = 0;
  c.mass.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) {
    c.mass[i] = Mass(ExpOfNegative(c.distance[i]));
    total += c.mass[i];
  }
  return total;
}

void OrderByDistance(Candidates& c) {
  c.order.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) c.order[i] = OrderedKey(c.distance[i]);
}

// Orders by how far a token's surprise is from the entropy, nearest first. With p = e^d / Σ e^d the
// difference of −ln p and the entropy is |d − Σ d e^d / Σ e^d|: the logarithm of the sum cancels.
float MeanDistance(uint64_t weighted, uint64_t total) {
  return -static_cast<float>(static_cast<double>(weighted) / static_cast<double>(total));
}

float MeanDistance(const Candidates& c, uint64_t total) {
  uint64_t weighted = 0;
  for (const float d : c.distance) weighted += Mass(-d * ExpOfNegative(d));
  return MeanDistance(weighted, total);
}

void OrderByTypicality(Candidates& c, float mean) {
  c.order.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) {
    c.order[i] = ~OrderedKey(std::fabs(c.distance[i] - mean));
  }
}

// The `count` best raw logits, ties to the lowest id.
void TopLogprobs(std::span<const float> z, RowPeaks& peaks, int count, Candidates& c,
                 SampleOutput& output) {
  c.ids.clear();
  c.distance.clear();
  GatherAtLeast(z, peaks.LowerBound(count), c.ids, c.distance);
  float best[kMaxTopLogprobs];
  int held = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    const float value = c.distance[i];
    if (held == count && !(value > best[held - 1])) continue;
    int at = held < count ? held++ : held - 1;
    for (; at > 0 && value > best[at - 1]; --at) {
      best[at] = best[at - 1];
      output.top_ids[at] = output.top_ids[at - 1];
    }
    best[at] = value;
    output.top_ids[at] = c.ids[i];
  }
  output.top_count = held;
  std::copy_n(best, held, output.top_logprobs);
}

}  // namespace

void Sampler::Reserve(int64_t vocab_size) {
  const size_t tokens = static_cast<size_t>(vocab_size);
  candidates_.ids.reserve(tokens);
  candidates_.distance.reserve(tokens);
  candidates_.order.reserve(tokens);
  candidates_.mass.reserve(tokens);
  raw_biased_.reserve(std::min(tokens, kMostBiases));
  raw_counted_.reserve(tokens);
  peaks_.Reserve(vocab_size);
}

int64_t Sampler::ReservedBytes(int64_t vocab_size) {
  constexpr int64_t kPerToken =
      sizeof(int32_t) + 2 * sizeof(float) + sizeof(uint32_t) + sizeof(uint64_t);
  const int64_t biased = std::min<int64_t>(vocab_size, kMostBiases) * int64_t{sizeof(float)};
  return vocab_size * kPerToken + biased + RowPeaks::ReservedBytes(vocab_size);
}

// Raw logits of the tokens that ChangeLogits may change and leave possible.
void Sampler::KeepRaw(std::span<const float> z, const SampleRow& row) {
  const auto keep = [&](const auto& list, std::vector<float>& raw) {
    raw.clear();
    for (const auto& entry : list) {
      const bool inside = entry.id >= 0 && static_cast<size_t>(entry.id) < z.size();
      raw.push_back(inside ? z[entry.id] : 0.0f);
    }
  };
  keep(row.logit_bias, raw_biased_);
  keep(HasPenalties(row) ? row.token_counts : std::span<const TokenCount>(), raw_counted_);
}

// The raw logit of a token that was chosen.
float Sampler::RawOf(std::span<const float> z, const SampleRow& row, int32_t id) const {
  const auto find = [id](const auto& list, const std::vector<float>& raw) -> const float* {
    const auto at =
        std::lower_bound(list.begin(), list.end(), id,
                         [](const auto& entry, int32_t wanted) { return entry.id < wanted; });
    if (at == list.end() || at->id != id || raw.empty()) return nullptr;
    return &raw[static_cast<size_t>(at - list.begin())];
  };
  if (const float* raw = find(row.logit_bias, raw_biased_)) return *raw;
  if (const float* raw = find(row.token_counts, raw_counted_)) return *raw;
  return z[id];
}

// Returns whether any logit may have changed.
bool Sampler::ChangeLogits(std::span<float> z, const SampleRow& row) {
  if (!row.allowed_mask.empty()) ForbidOutsideMask(z, row.allowed_mask);
  const auto inside = [&z](int32_t id) { return id >= 0 && static_cast<size_t>(id) < z.size(); };
  for (const int32_t id : row.banned_ids) {
    if (inside(id)) z[id] = kImpossible;
  }
  for (const TokenBias& bias : row.logit_bias) {
    if (inside(bias.id)) z[bias.id] += bias.bias;
  }
  if (HasPenalties(row)) {
    for (const TokenCount& count : row.token_counts) {
      if (!inside(count.id)) continue;
      z[count.id] = Penalise(z[count.id], count.output_count, row.repetition_penalty,
                             row.frequency_penalty, row.presence_penalty);
    }
  }
  return !row.allowed_mask.empty() || !row.banned_ids.empty() || !row.logit_bias.empty() ||
         (HasPenalties(row) && !row.token_counts.empty());
}

void Sampler::Gather(std::span<const float> z, const Peak& peak, float least, float temperature) {
  Candidates& c = candidates_;
  c.ids.clear();
  c.distance.clear();
  GatherAtLeast(z, least, c.ids, c.distance);
  size_t kept = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    const float distance = DistanceOf(c.distance[i], peak.value, temperature);
    if (distance == kImpossible) continue;
    c.ids[kept] = c.ids[i];
    c.distance[kept++] = distance;
  }
  c.ids.resize(kept);
  c.distance.resize(kept);
}

// Drops the candidates for which `keep` of their index is false.
template <class Keep>
void Sampler::KeepIf(const Keep& keep) {
  Candidates& c = candidates_;
  size_t kept = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    if (!keep(i)) continue;
    c.ids[kept] = c.ids[i];
    c.distance[kept++] = c.distance[i];
  }
  c.ids.resize(kept);
  c.distance.resize(kept);
}

// Gathers tokens from the peak downwards until they hold the target, which makes them all that a
// cut there can keep, and cuts.
void Sampler::CutRowToTopP(std::span<const float> z, const Peak& peak, const SampleRow& row) {
  const uint64_t target = ShareOf(row.top_p, SumMasses(z, peak.value, row.temperature));
  for (const float depth : kDepths) {
    Gather(z, peak, LogitAtDepth(peak.value, depth, row.temperature), row.temperature);
    WeighAll(candidates_);
    uint64_t held = 0;
    for (size_t i = 0; i < candidates_.ids.size(); ++i) {
      if (candidates_.distance[i] >= depth) held += candidates_.mass[i];
    }
    if (held < target) continue;
    OrderByDistance(candidates_);
    return Cut(candidates_, CutBy::kMass, target);
  }
  Gather(z, peak, kImpossible, row.temperature);
  WeighAll(candidates_);
  OrderByDistance(candidates_);
  Cut(candidates_, CutBy::kMass, target);
}

// As CutRowToTopP, from the mean to both sides.
void Sampler::CutRowToTypical(std::span<const float> z, const Peak& peak, const SampleRow& row) {
  Candidates& c = candidates_;
  const uint64_t total = SumMasses(z, peak.value, row.temperature);
  const float mean = MeanDistance(SumWeightedMasses(z, peak.value, row.temperature), total);
  const uint64_t target = ShareOf(row.typical_p, total);
  for (const float width : kWidths) {
    Gather(z, peak, LogitAtDepth(peak.value, mean - width - 1e-3f, row.temperature),
           row.temperature);
    KeepIf([&](size_t i) { return std::fabs(c.distance[i] - mean) <= width; });
    if (WeighAll(c) < target) continue;
    OrderByTypicality(c, mean);
    return Cut(c, CutBy::kMass, target);
  }
  Gather(z, peak, kImpossible, row.temperature);
  WeighAll(c);
  OrderByTypicality(c, mean);
  Cut(c, CutBy::kMass, target);
}

// Leaves in candidates_ the tokens among which is drawn.
void Sampler::Filter(std::span<const float> z, const Peak& peak, const SampleRow& row) {
  Candidates& c = candidates_;
  const bool narrow = row.min_p > 0.0f || row.top_k > 0;
  if (!narrow && row.top_p >= 1.0f) return CutRowToTypical(z, peak, row);
  if (narrow) {
    float least = kImpossible;
    if (row.min_p > 0.0f) {
      // ExpOfNegative is 0 below −87.4, and a logarithm needs a normal number.
      const double log_min_p = Log(std::max(static_cast<double>(row.min_p), 1e-38));
      const float depth = static_cast<float>(std::max(log_min_p - 1e-3, -88.0));
      least = LogitAtDepth(peak.value, depth, row.temperature);
    }
    if (row.top_k > 0) {
      const float bound = peaks_.LowerBound(row.top_k);
      if (bound != kImpossible) {
        const float depth = DistanceOf(bound, peak.value, row.temperature);
        least = std::max(least, LogitAtDepth(peak.value, depth, row.temperature));
      }
    }
    Gather(z, peak, least, row.temperature);
    if (row.min_p > 0.0f) {
      KeepIf([&](size_t i) { return ExpOfNegative(c.distance[i]) >= row.min_p; });
    }
  } else {
    CutRowToTopP(z, peak, row);
  }
  if (row.top_k > 0) {
    OrderByDistance(c);
    Cut(c, CutBy::kCount, static_cast<uint64_t>(row.top_k));
  }
  if (narrow && row.top_p < 1.0f) {
    OrderByDistance(c);
    Cut(c, CutBy::kMass, ShareOf(row.top_p, WeighAll(c)));
  }
  if (row.typical_p < 1.0f) {
    const uint64_t total = WeighAll(c);
    OrderByTypicality(c, MeanDistance(c, total));
    Cut(c, CutBy::kMass, ShareOf(row.typical_p, total));
  }
}

int32_t Sampler::Draw(std::span<const float> z, const Peak& peak, const SampleRow& row) {
  const NoisePosition at{row.seed, row.output_index, row.choice, Purpose::kSample};
  const bool filtered =
      row.top_k > 0 || row.top_p < 1.0f || row.min_p > 0.0f || row.typical_p < 1.0f;
  if (!filtered) return DrawAmongAll(z, peak, row.temperature, at).id;
  Filter(z, peak, row);
  Best best;
  for (size_t i = 0; i < candidates_.ids.size(); ++i) {
    Consider(at, candidates_.distance[i], candidates_.ids[i], best);
  }
  return best.id;
}

void Sampler::Sample(std::span<float> logits, const SampleRow& row, SampleOutput& output) {
  output = SampleOutput{};
  Peak peak = peaks_.Find(logits);
  if (!peak.usable) {
    output.not_a_number = true;
    return;
  }
  if (peak.id < 0) return;
  const double raw_peak = peak.value;
  double log_sum = 0.0;
  const auto logprob = [&](float z) {
    return static_cast<float>((static_cast<double>(z) - raw_peak) - log_sum);
  };
  if (row.logprobs > 0) {
    const uint64_t sum = SumMasses(logits, peak.value, 1.0f);
    log_sum = Log(static_cast<double>(sum) / kMassUnit);
    const int wanted = std::min(row.logprobs - 1, kMaxTopLogprobs);
    if (wanted > 0) TopLogprobs(logits, peaks_, wanted, candidates_, output);
    for (int i = 0; i < output.top_count; ++i) {
      output.top_logprobs[i] = logprob(output.top_logprobs[i]);
    }
  }
  if (row.scored_token >= 0) {
    output.token = row.scored_token;
    output.rank = 1 + CountBefore(logits, row.scored_token);
    output.logprob = logprob(logits[row.scored_token]);
    return;
  }
  if (row.logprobs > 0) KeepRaw(logits, row);
  if (ChangeLogits(logits, row)) peak = peaks_.Find(logits);
  if (!peak.usable) output.not_a_number = true;
  if (peak.id < 0) return;
  output.token = row.temperature < 1e-5f ? peak.id : Draw(logits, peak, row);
  if (row.logprobs > 0) output.logprob = logprob(RawOf(logits, row, output.token));
}

}  // namespace quire::kernels::sampling
