// The whole sampler against a float64 implementation of its order of work: random mixes of all
// parameters over random logits, and its fast passes against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/sampling/sampler.h"
#include "tests/kernels/sample_case.h"

namespace quire::kernels::sampling {
namespace {

constexpr double kGone = -std::numeric_limits<double>::infinity();
// Where two float64 values are nearer than this, float32 may put them the other way round.
constexpr double kClose = 2e-5;

// The float64 version. `sure` is false once a decision was too close to call.
class Oracle {
 public:
  explicit Oracle(const Case& c) : c_(c), raw_(c.logits.begin(), c.logits.end()), z_(raw_) {}

  int32_t Token() {
    Change();
    const double top = *std::max_element(z_.begin(), z_.end());
    if (top == kGone) return -1;
    if (c_.row.temperature < 1e-5f) return Largest(z_);
    for (double& v : z_) v = (v - top) / c_.row.temperature;
    CutMinP();
    if (c_.row.top_k > 0) KeepCount(Order(z_), c_.row.top_k);
    if (c_.row.top_p < 1.0f) KeepMass(Order(z_), z_, c_.row.top_p);
    if (c_.row.typical_p < 1.0f) CutTypical();
    std::vector<double> score(z_.size(), kGone);
    const NoisePosition at{c_.row.seed, c_.row.output_index, c_.row.choice, Purpose::kSample};
    for (size_t i = 0; i < z_.size(); ++i) {
      if (z_[i] != kGone) score[i] = z_[i] + Noise(at, static_cast<uint32_t>(i));
    }
    return Largest(score);
  }

  double Logprob(int32_t id) const {
    const double top = *std::max_element(raw_.begin(), raw_.end());
    double sum = 0.0;
    for (double v : raw_) sum += std::exp(v - top);
    return raw_[id] - top - std::log(sum);
  }
  std::vector<int> RawOrder() const { return Order(raw_); }

  bool sure = true;

 private:
  static double Noise(const NoisePosition& at, uint32_t token) {
    const PhiloxBlock counter{{token, static_cast<uint32_t>(at.output_index), at.choice,
                               static_cast<uint32_t>(at.output_index >> 32) << 8}};
    const PhiloxBlock random =
        Philox(counter, static_cast<uint32_t>(at.seed), static_cast<uint32_t>(at.seed >> 32));
    const double n = std::ldexp(random.word[0], 20) + (random.word[1] >> 12);
    return -std::log(-std::log((n + 0.5) / std::ldexp(1.0, 52)));
  }

  void Close(double a, double b) {
    if (a != b && std::fabs(a - b) < kClose * std::max(1.0, std::fabs(a))) sure = false;
  }

  static std::vector<int> Order(const std::vector<double>& key) {
    std::vector<int> order(key.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[a] > key[b]; });
    return order;
  }

  int32_t Largest(const std::vector<double>& key) {
    const std::vector<int> order = Order(key);
    if (order.size() > 1) Close(key[order[0]], key[order[1]]);
    return order[0];
  }

  void Change() {
    for (size_t i = 0; i < z_.size(); ++i) {
      if (!c_.mask.empty() && ((c_.mask[i / 32] >> (i % 32)) & 1) == 0) z_[i] = kGone;
    }
    for (int32_t id : c_.banned) z_[id] = kGone;
    for (const TokenBias& bias : c_.bias) z_[bias.id] += bias.bias;
    for (const TokenCount& count : c_.counts) {
      double& v = z_[count.id];
      v = v > 0 ? v / c_.row.repetition_penalty : v * c_.row.repetition_penalty;
      v -= static_cast<double>(c_.row.frequency_penalty) * count.output_count;
      if (count.output_count > 0) v -= c_.row.presence_penalty;
    }
  }

  void CutMinP() {
    if (c_.row.min_p <= 0.0f) return;
    for (double& v : z_) {
      Close(v, std::log(static_cast<double>(c_.row.min_p)));
      if (std::exp(v) < c_.row.min_p) v = kGone;
    }
  }

  void KeepCount(const std::vector<int>& order, int count) {
    if (static_cast<size_t>(count) >= order.size()) return;
    Close(z_[order[count - 1]], z_[order[count]]);
    for (size_t i = count; i < order.size(); ++i) z_[order[i]] = kGone;
  }

  // `key`: what `order` sorts by.
  void KeepMass(const std::vector<int>& order, const std::vector<double>& key, double mass) {
    double total = 0.0;
    for (double v : z_) total += std::exp(v);
    double sum = 0.0;
    std::vector<double> cut = z_;
    for (size_t i = 0; i < order.size(); ++i) {
      if (cut[order[i]] == kGone) continue;
      Close(sum, mass);
      if (sum >= mass) {
        if (i > 0 && z_[order[i - 1]] != kGone) Close(key[order[i - 1]], key[order[i]]);
        z_[order[i]] = kGone;
      }
      sum += std::exp(cut[order[i]]) / total;
    }
  }

  void CutTypical() {
    double total = 0.0;
    double mean = 0.0;
    for (double v : z_) total += std::exp(v);
    for (double v : z_) mean += v == kGone ? 0.0 : v * std::exp(v) / total;
    std::vector<double> key;
    for (double v : z_) key.push_back(v == kGone ? kGone : -std::fabs(v - mean));
    KeepMass(Order(key), key, c_.row.typical_p);
  }

  const Case& c_;
  const std::vector<double> raw_;
  std::vector<double> z_;
};

TEST(SamplerOracle, RandomMixesOfAllParameters) {
  std::mt19937_64 random(20);
  Sampler sampler;  // one for all: nothing of a row stays for the next
  int sure = 0;
  int unsure = 0;
  for (int round = 0; round < 4000; ++round) {
    SCOPED_TRACE(round);
    const Case c = RandomCase(random);
    Oracle oracle(c);
    const int32_t wanted = oracle.Token();
    // Rows lie at any address.
    std::vector<float> buffer(c.logits.size() + 8);
    const size_t offset = static_cast<size_t>(round % 8);
    std::copy(c.logits.begin(), c.logits.end(), buffer.begin() + offset);
    SampleOutput output;
    sampler.Sample(std::span(buffer).subspan(offset, c.logits.size()), RowOf(c), output);
    ASSERT_FALSE(output.not_a_number);
    if (!oracle.sure) {
      ++unsure;
      continue;
    }
    ++sure;
    ASSERT_EQ(output.token, wanted);
    if (c.row.logprobs == 0 || wanted < 0) continue;
    ASSERT_NEAR(output.logprob, oracle.Logprob(wanted), 3e-6);
    const std::vector<int> order = oracle.RawOrder();
    const int tops = std::min<int>(c.row.logprobs - 1, static_cast<int>(order.size()));
    ASSERT_LE(output.top_count, tops);
    for (int i = 0; i < output.top_count; ++i) {
      ASSERT_EQ(output.top_ids[i], order[i]) << i;
      if (c.logits[order[i]] == kImpossible) continue;
      ASSERT_NEAR(output.top_logprobs[i], oracle.Logprob(order[i]), 3e-6);
    }
  }
  EXPECT_GE(sure, 2000);
  EXPECT_LT(unsure, sure);
}

std::vector<float> Logits(int count, uint32_t seed, float size) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> logits(count);
  for (float& z : logits) z = normal(random);
  return logits;
}

TEST(Scan, MassesAreThoseOfAPlainLoop) {
  for (const int count : {1, 7, 8, 255, 256, 1000, 128000}) {
    std::vector<float> z = Logits(count, 3, 12.0f);
    if (count > 20) z[17] = kImpossible;
    const float peak = *std::max_element(z.begin(), z.end());
    for (const float temperature : {1.0f, 0.3f, 2.5f}) {
      uint64_t sum = 0;
      for (float v : z) sum += Mass(ExpOfNegative(DistanceOf(v, peak, temperature)));
      EXPECT_EQ(SumMasses(z, peak, temperature), sum) << count;
      uint64_t weighted = 0;
      for (float v : z) {
        const float d = DistanceOf(v, peak, temperature);
        if (d != kImpossible) weighted += Mass(-d * ExpOfNegative(d));
      }
      EXPECT_EQ(SumWeightedMasses(z, peak, temperature), weighted) << count;
    }
  }
}

TEST(Scan, ThePeakIsTheLowestIdOfTheLargest) {
  RowPeaks peaks;
  for (const int count : {1, 255, 256, 257, 512, 5000}) {
    std::vector<float> z = Logits(count, 5, 1.0f);
    for (int round = 0; round < 50; ++round) {
      const int at = static_cast<int>((static_cast<int64_t>(round) * 7919) % count);
      std::vector<float> row = z;
      row[at] = 50.0f;
      row[count - 1] = 50.0f;
      const Peak peak = peaks.Find(row);
      EXPECT_TRUE(peak.usable);
      EXPECT_EQ(peak.id, at);
      EXPECT_EQ(peak.value, 50.0f);
      row[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(peaks.Find(row).usable);
      row[at] = -std::numeric_limits<float>::quiet_NaN();
      EXPECT_FALSE(peaks.Find(row).usable);
      row[at] = std::numeric_limits<float>::infinity();
      EXPECT_FALSE(peaks.Find(row).usable);
    }
    const Peak none = peaks.Find(std::vector<float>(count, kImpossible));
    EXPECT_TRUE(none.usable);
    EXPECT_EQ(none.id, -1);
  }
}

TEST(Scan, ABoundHasEnoughTokensAboveIt) {
  RowPeaks peaks;
  for (const int count : {300, 5000, 128000}) {
    const std::vector<float> z = Logits(count, 8, 2.0f);
    peaks.Find(z);
    for (const int64_t k : {1, 2, 5, 20, 100, 1000, 4000, 100000}) {
      const float bound = peaks.LowerBound(k);
      const auto above = std::count_if(z.begin(), z.end(), [&](float v) { return v >= bound; });
      EXPECT_GE(above, std::min<int64_t>(k, count));
    }
  }
}

// The draw that skips tokens out of reach is the draw of all.
TEST(Scan, TheDrawIsThatOfAPlainLoop) {
  for (const float size : {0.01f, 1.0f, 4.0f, 20.0f}) {
    std::vector<float> z = Logits(3003, 9, size);
    z[100] = kImpossible;
    RowPeaks peaks;
    const Peak peak = peaks.Find(z);
    for (uint64_t index = 0; index < 300; ++index) {
      const NoisePosition at{77 + index % 3, index, static_cast<uint32_t>(index % 2),
                             Purpose::kSample};
      const float temperature = index % 2 == 0 ? 1.0f : 0.6f;
      Best best;
      for (size_t i = 0; i < z.size(); ++i) {
        const double score = static_cast<double>(DistanceOf(z[i], peak.value, temperature)) +
                             Gumbel(at, static_cast<uint32_t>(i));
        if (score > best.score) best = {score, static_cast<int32_t>(i)};
      }
      const Best got = DrawAmongAll(z, 0, peak, temperature, at);
      ASSERT_EQ(got.id, best.id);
      ASSERT_EQ(got.score, best.score);
    }
  }
}

// A scored token: its logprob and its place among all.
TEST(Sampler, ScoresATokenOfThePrompt) {
  const std::vector<float> z = Logits(700, 12, 2.0f);
  std::vector<int> order(z.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return z[a] > z[b]; });
  Sampler sampler;
  for (size_t place = 0; place < order.size(); ++place) {
    SampleRow row;
    row.scored_token = order[place];
    row.logprobs = 1 + 4;
    SampleOutput output;
    std::vector<float> logits = z;
    sampler.Sample(logits, row, output);
    EXPECT_EQ(output.token, order[place]);
    EXPECT_EQ(output.rank, static_cast<int32_t>(place) + 1);
    ASSERT_EQ(output.top_count, 4);
    EXPECT_EQ(output.top_ids[3], order[3]);
    if (place < 4) {
      EXPECT_EQ(std::bit_cast<uint32_t>(output.logprob),
                std::bit_cast<uint32_t>(output.top_logprobs[place]));
    }
    EXPECT_EQ(logits, z);
  }
}

}  // namespace
}  // namespace quire::kernels::sampling
