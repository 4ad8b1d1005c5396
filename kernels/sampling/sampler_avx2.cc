// Compiled for AVX2 and fma, which every served host has; the arithmetic is that of arithmetic.h.
#include "kernels/sampling/sampler.h"

#include <cmath>
#include <limits>

#include "kernels/sampling/arithmetic.h"

namespace quire::kernels::sampling {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr int kScanBlock = 1024;

struct Peak {
  bool usable = false;  // neither NaN nor +∞ anywhere
  float value = kImpossible;
  int32_t id = -1;  // the lowest id that has it; −1 when all are −∞
};

// Signed keys in the order of floats, so that a maximum is one of integers, which vectorises.
int32_t SignedKey(float x) { return static_cast<int32_t>(OrderedKey(x) ^ 0x80000000u); }

Peak FindPeak(std::span<const float> z) {
  Peak peak;
  const int64_t count = static_cast<int64_t>(z.size());
  uint32_t widest = 0;  // NaN has the largest magnitude of all bit patterns
  int32_t best = std::numeric_limits<int32_t>::min();
  int64_t best_block = 0;
  for (int64_t begin = 0; begin < count; begin += kScanBlock) {
    const int64_t end = begin + kScanBlock < count ? begin + kScanBlock : count;
    int32_t block_best = std::numeric_limits<int32_t>::min();
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t magnitude = BitsOf(z[i]) & 0x7fffffffu;
      widest = magnitude > widest ? magnitude : widest;
      const int32_t key = SignedKey(z[i]);
      block_best = key > block_best ? key : block_best;
    }
    if (block_best > best) {
      best = block_best;
      best_block = begin;
    }
  }
  if (widest > 0x7f800000u || best == SignedKey(std::numeric_limits<float>::infinity()))
    return peak;
  peak.usable = true;
  if (best == SignedKey(kImpossible)) return peak;
  for (int64_t i = best_block; i < count; ++i) {
    if (SignedKey(z[i]) != best) continue;
    peak.value = z[i];
    peak.id = static_cast<int32_t>(i);
    break;
  }
  return peak;
}

// ln Σ e^(z − max), the sum in integers.
double LogOfSum(std::span<const float> z, float peak) {
  uint64_t sum = 0;
  for (const float value : z) sum += Mass(ExpOfNegative(value - peak));
  return Log(static_cast<double>(sum) / kMassUnit);
}

// The `count` best raw logits, ties to the lowest id, by insertion.
void TopLogprobs(std::span<const float> z, float peak, double log_sum, int count,
                 SampleOutput& output) {
  float best[kMaxTopLogprobs];
  int held = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    if (held == count && !(z[i] > best[held - 1])) continue;
    int at = held < count ? held++ : held - 1;
    for (; at > 0 && z[i] > best[at - 1]; --at) {
      best[at] = best[at - 1];
      output.top_ids[at] = output.top_ids[at - 1];
    }
    best[at] = z[i];
    output.top_ids[at] = static_cast<int32_t>(i);
  }
  output.top_count = held;
  for (int i = 0; i < held; ++i) {
    output.top_logprobs[i] = static_cast<float>((static_cast<double>(best[i]) - peak) - log_sum);
  }
}

bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

void ForbidOutsideMask(std::span<float> z, std::span<const uint32_t> mask) {
  for (size_t i = 0; i < z.size(); ++i) {
    const bool allowed = i / 32 < mask.size() && ((mask[i / 32] >> (i % 32)) & 1u) != 0;
    if (!allowed) z[i] = kImpossible;
  }
}

// Returns whether any logit may have changed.
bool ChangeLogits(std::span<float> z, const SampleRow& row) {
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
         HasPenalties(row);
}

// logits become (z − max) / temperature.
void MeasureFromPeak(std::span<float> z, float peak, float temperature) {
  for (float& value : z) value = (value - peak) / temperature;
}

void Gather(std::span<const float> distance, float min_p, Candidates& to) {
  to.ids.clear();
  to.distance.clear();
  for (size_t i = 0; i < distance.size(); ++i) {
    if (distance[i] == kImpossible) continue;
    if (min_p > 0.0f && ExpOfNegative(distance[i]) < min_p) continue;
    to.ids.push_back(static_cast<int32_t>(i));
    to.distance.push_back(distance[i]);
  }
}

void OrderByDistance(Candidates& c) {
  c.order.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) c.order[i] = OrderedKey(c.distance[i]);
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

// Orders by how far a token's surprise is from the entropy, nearest first. With p = e^d / Σ e^d the
// difference of −ln p and the entropy is |d − Σ d e^d / Σ e^d|: the logarithm of the sum cancels.
void OrderByTypicality(Candidates& c, uint64_t total) {
  uint64_t weighted = 0;
  for (const float d : c.distance) weighted += Mass(-d * ExpOfNegative(d));
  const float mean =
      -static_cast<float>(static_cast<double>(weighted) / static_cast<double>(total));
  for (size_t i = 0; i < c.ids.size(); ++i) {
    c.order[i] = ~OrderedKey(std::fabs(c.distance[i] - mean));
  }
}

void Filter(const SampleRow& row, Candidates& c) {
  if (row.top_k > 0) {
    OrderByDistance(c);
    Cut(c, CutBy::kCount, static_cast<uint64_t>(row.top_k));
  }
  if (row.top_p < 1.0f) {
    OrderByDistance(c);
    Cut(c, CutBy::kMass, ShareOf(row.top_p, WeighAll(c)));
  }
  if (row.typical_p < 1.0f) {
    const uint64_t total = WeighAll(c);
    c.order.resize(c.ids.size());
    OrderByTypicality(c, total);
    Cut(c, CutBy::kMass, ShareOf(row.typical_p, total));
  }
}

NoisePosition PositionOf(const SampleRow& row) {
  return NoisePosition{row.seed, row.output_index, row.choice, Purpose::kSample};
}

struct Best {
  double score = -std::numeric_limits<double>::infinity();
  int32_t id = -1;
};

void Consider(const NoisePosition& at, float distance, int32_t id, Best& best) {
  // Noise is bounded: most tokens of a large vocabulary are out of reach and need none drawn.
  if (static_cast<double>(distance) + kLargestGumbel < best.score) return;
  const double score = static_cast<double>(distance) + Gumbel(at, static_cast<uint32_t>(id));
  if (score > best.score || (score == best.score && id < best.id)) best = Best{score, id};
}

}  // namespace

void Sampler::Sample(std::span<float> logits, const SampleRow& row, SampleOutput& output) {
  output = SampleOutput{};
  Peak peak = FindPeak(logits);
  if (!peak.usable) {
    output.not_a_number = true;
    return;
  }
  if (peak.id < 0) return;
  const float raw_peak = peak.value;
  double log_sum = 0.0;
  if (row.logprobs > 0) {
    log_sum = LogOfSum(logits, raw_peak);
    const int wanted = row.logprobs - 1 < kMaxTopLogprobs ? row.logprobs - 1 : kMaxTopLogprobs;
    if (wanted > 0) TopLogprobs(logits, raw_peak, log_sum, wanted, output);
  }
  // The chosen token's logprob is of the raw logits, which are changed below.
  std::vector<float> raw;
  if (row.logprobs > 0) raw.assign(logits.begin(), logits.end());

  if (ChangeLogits(logits, row)) peak = FindPeak(logits);
  if (!peak.usable) output.not_a_number = true;
  if (peak.id < 0) return;
  output.token = peak.id;
  if (!(row.temperature < 1e-5f)) {
    MeasureFromPeak(logits, peak.value, row.temperature);
    const NoisePosition at = PositionOf(row);
    Best best;
    Consider(at, 0.0f, peak.id, best);
    const bool filtered =
        row.top_k > 0 || row.top_p < 1.0f || row.min_p > 0.0f || row.typical_p < 1.0f;
    if (filtered) {
      Gather(logits, row.min_p, candidates_);
      Filter(row, candidates_);
      best = Best{};
      for (size_t i = 0; i < candidates_.ids.size(); ++i) {
        Consider(at, candidates_.distance[i], candidates_.ids[i], best);
      }
    } else {
      for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] != kImpossible) Consider(at, logits[i], static_cast<int32_t>(i), best);
      }
    }
    output.token = best.id;
  }
  if (row.logprobs > 0) {
    output.logprob =
        static_cast<float>((static_cast<double>(raw[output.token]) - raw_peak) - log_sum);
  }
}

}  // namespace quire::kernels::sampling
