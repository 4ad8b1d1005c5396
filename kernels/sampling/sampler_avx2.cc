// Compiled for AVX2 and fma, which every served host has; arithmetic.h defines the arithmetic.
#include "kernels/sampling/sampler.h"

#include <algorithm>
#include <cmath>

namespace quire::kernels::sampling {

void Sampler::Reserve(int64_t vocab_size) {
  candidates_.Reserve(vocab_size);
  changes_.Reserve(vocab_size);
  peaks_.Reserve(vocab_size);
}

int64_t Sampler::ReservedBytes(int64_t vocab_size) {
  return Candidates::ReservedBytes(vocab_size) + RowChanges::ReservedBytes(vocab_size) +
         RowPeaks::ReservedBytes(vocab_size);
}

void Sampler::Gather(std::span<const float> z, const Peak& peak, float least, float temperature) {
  GatherCandidates(z, peak.value, least, temperature, candidates_);
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
    c.KeepIf([&](size_t i) { return std::fabs(c.distance[i] - mean) <= width; });
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
    if (row.min_p > 0.0f) least = LogitAtShare(peak.value, row.min_p, row.temperature);
    if (row.top_k > 0) {
      const float bound = peaks_.LowerBound(row.top_k);
      if (bound != kImpossible) {
        const float depth = DistanceOf(bound, peak.value, row.temperature);
        least = std::max(least, LogitAtDepth(peak.value, depth, row.temperature));
      }
    }
    Gather(z, peak, least, row.temperature);
    if (row.min_p > 0.0f) {
      c.KeepIf([&](size_t i) { return ExpOfNegative(c.distance[i]) >= row.min_p; });
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
    OrderByTypicality(c, MeanDistance(WeightedMass(c), total));
    Cut(c, CutBy::kMass, ShareOf(row.typical_p, total));
  }
}

int32_t Sampler::Draw(std::span<float> z, const Peak& peak, const SampleRow& row) {
  const NoisePosition at{row.seed, row.output_index, row.choice, Purpose::kSample};
  const bool filtered =
      row.top_k > 0 || row.top_p < 1.0f || row.min_p > 0.0f || row.typical_p < 1.0f;
  const bool masked = OnlyMasks(row);
  if (!filtered && masked) {
    return DrawAmongAllowed(z, row.allowed_mask, peak, row.temperature, at).id;
  }
  if (!filtered) return DrawAmongAll(z, 0, peak, row.temperature, at).id;
  if (masked) ForbidOutsideMask(z, 0, row.allowed_mask);
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
    TopLogit top[kMaxTopLogprobs];
    if (wanted > 0) output.top_count = FindTop(logits, peaks_, wanted, candidates_, top);
    for (int i = 0; i < output.top_count; ++i) {
      output.top_ids[i] = top[i].id;
      output.top_logprobs[i] = logprob(top[i].value);
    }
  }
  if (row.scored_token >= 0) {
    output.token = row.scored_token;
    output.rank = 1 + CountBefore(logits, logits[row.scored_token], row.scored_token);
    output.logprob = logprob(logits[row.scored_token]);
    return;
  }
  if (row.logprobs > 0) changes_.KeepRaw(logits, 0, row);
  if (OnlyMasks(row)) {
    // Most masks leave few tokens: the row is not written where it need not be.
    peak = peaks_.FindAllowed(logits, row.allowed_mask);
  } else if (ChangesLogits(row)) {
    ChangeLogits(logits, 0, row);
    peak = peaks_.Find(logits);
  }
  if (!peak.usable) output.not_a_number = true;
  if (peak.id < 0) return;
  output.token = row.temperature < kGreedyTemperature ? peak.id : Draw(logits, peak, row);
  if (row.logprobs > 0) output.logprob = logprob(changes_.RawOf(logits, 0, row, output.token));
}

}  // namespace quire::kernels::sampling
