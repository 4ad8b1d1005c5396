// Compiled for AVX2 and fma, which every served host has; arithmetic.h defines the arithmetic.
#include "kernels/sampling/candidates.h"

#include <algorithm>
#include <cmath>

namespace quire::kernels::sampling {

void Candidates::Reserve(int64_t tokens) {
  const size_t count = static_cast<size_t>(tokens);
  ids.reserve(count);
  distance.reserve(count);
  order.reserve(count);
  mass.reserve(count);
}

int64_t Candidates::ReservedBytes(int64_t tokens) {
  return tokens * int64_t{sizeof(int32_t) + sizeof(float) + sizeof(uint32_t) + sizeof(uint64_t)};
}

float LogitAtDepth(float peak, float distance, float temperature) {
  const double below = static_cast<double>(distance) * temperature;
  const double least = static_cast<double>(peak) + below * 1.000002;
  return static_cast<float>(least - 1e-6 * std::fabs(least) - 1e-30);
}

float LogitAtShare(float peak, float min_p, float temperature) {
  // ExpOfNegative is 0 below −87.4, and a logarithm needs a normal number.
  const double log_min_p = Log(std::max(static_cast<double>(min_p), 1e-38));
  const float depth = static_cast<float>(std::max(log_min_p - 1e-3, -88.0));
  return LogitAtDepth(peak, depth, temperature);
}

void GatherCandidates(std::span<const float> z, float peak, float least, float temperature,
                      Candidates& c) {
  c.ids.clear();
  c.distance.clear();
  GatherAtLeast(z, least, c.ids, c.distance);
  for (float& value : c.distance) value = DistanceOf(value, peak, temperature);
  c.KeepIf([&c](size_t i) { return c.distance[i] != kImpossible; });
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

uint64_t WeightedMass(const Candidates& c) {
  uint64_t weighted = 0;
  for (const float d : c.distance) weighted += Mass(-d * ExpOfNegative(d));
  return weighted;
}

float MeanDistance(uint64_t weighted, uint64_t total) {
  return -static_cast<float>(static_cast<double>(weighted) / static_cast<double>(total));
}

void OrderByDistance(Candidates& c) {
  c.order.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) c.order[i] = OrderedKey(c.distance[i]);
}

void OrderByTypicality(Candidates& c, float mean) {
  c.order.resize(c.ids.size());
  for (size_t i = 0; i < c.ids.size(); ++i) {
    c.order[i] = ~OrderedKey(std::fabs(c.distance[i] - mean));
  }
}

int InsertTop(TopLogit* top, int held, int count, TopLogit next) {
  if (held == count && !(next.value > top[held - 1].value)) return held;
  int at = held < count ? held : held - 1;
  held = std::min(held + 1, count);
  for (; at > 0 && next.value > top[at - 1].value; --at) top[at] = top[at - 1];
  top[at] = next;
  return held;
}

int FindTop(std::span<const float> z, RowPeaks& peaks, int count, Candidates& c, TopLogit* top) {
  c.ids.clear();
  c.distance.clear();
  GatherAtLeast(z, peaks.LowerBound(count), c.ids, c.distance);
  int held = 0;
  for (size_t i = 0; i < c.ids.size(); ++i) {
    held = InsertTop(top, held, count, {c.distance[i], c.ids[i]});
  }
  return held;
}

}  // namespace quire::kernels::sampling
