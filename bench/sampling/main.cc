// Microseconds per row of the host sampler on one thread, 64 rows over a vocabulary of 128,000, for
// several mixes of parameters, each beside a plain read of the same rows, the two alternating:
// quire-bench-sampling [repetitions]. The last line is JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/sampling/max_probe.h"
#include "kernels/sampling/sampler.h"

namespace quire::bench {
namespace {

using kernels::SampleOutput;
using kernels::SampleRow;

constexpr size_t kRows = 64;
constexpr size_t kVocabulary = 128'000;
constexpr int32_t kCounted = 2000;  // distinct tokens of a long prompt and its answer

struct Mix {
  const char* name;
  SampleRow row;
  bool changes = false;  // the logits, which are put back before each pass
};

struct Lists {
  std::vector<uint32_t> mask;
  std::vector<kernels::TokenBias> bias;
  std::vector<kernels::TokenCount> counts;
};

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A bell of logits with a few likely tokens on top, as a model of a large vocabulary gives them.
std::vector<float> MakeLogits() {
  std::mt19937 random(1);
  std::normal_distribution<float> bell(0.0f, 2.0f);
  std::vector<float> logits(kRows * kVocabulary);
  for (float& z : logits) z = bell(random);
  for (size_t row = 0; row < kRows; ++row) {
    for (int i = 0; i < 20; ++i) {
      logits[row * kVocabulary + random() % kVocabulary] = 14.0f - 0.4f * static_cast<float>(i);
    }
  }
  return logits;
}

Lists MakeLists() {
  Lists lists;
  lists.mask.resize(kVocabulary / 32);
  for (size_t id = 0; id < kVocabulary; id += 32) lists.mask[id / 32] = 1u;
  for (int32_t i = 0; i < 300; ++i) lists.bias.push_back({i * 401, 2.0f});
  for (int32_t i = 0; i < kCounted; ++i) lists.counts.push_back({i * 61, i % 3});
  return lists;
}

std::vector<Mix> MakeMixes(const Lists& lists) {
  SampleRow plain;
  plain.temperature = 0.8f;
  std::vector<Mix> mixes;
  const auto add = [&](const char* name, auto change, bool changes = false) {
    Mix& mix = mixes.emplace_back(Mix{name, plain, changes});
    change(mix.row);
  };
  add("greedy", [](SampleRow& r) { r.temperature = 0.0f; });
  add("greedy, 20 logprobs", [](SampleRow& r) {
    r.temperature = 0.0f;
    r.logprobs = 21;
  });
  add("temperature", [](SampleRow&) {});
  add("top_k 50", [](SampleRow& r) { r.top_k = 50; });
  add("top_p 0.9", [](SampleRow& r) { r.top_p = 0.9f; });
  add("top_k 50, top_p 0.95", [](SampleRow& r) {
    r.top_k = 50;
    r.top_p = 0.95f;
  });
  add("min_p 0.05", [](SampleRow& r) { r.min_p = 0.05f; });
  add("typical_p 0.9", [](SampleRow& r) { r.typical_p = 0.9f; });
  add(
      "penalties of 2,000 tokens, top_p 0.9",
      [&](SampleRow& r) {
        r.top_p = 0.9f;
        r.repetition_penalty = 1.1f;
        r.frequency_penalty = 0.2f;
        r.token_counts = lists.counts;
      },
      true);
  add(
      "300 biases, temperature", [&](SampleRow& r) { r.logit_bias = lists.bias; }, true);
  add(
      "4,000 allowed, temperature", [&](SampleRow& r) { r.allowed_mask = lists.mask; }, true);
  return mixes;
}

struct Result {
  std::vector<double> sample_us, read_us, ratios;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Run(int repetitions) {
  const std::vector<float> original = MakeLogits();
  std::vector<float> logits = original;
  const Lists lists = MakeLists();
  std::vector<Mix> mixes = MakeMixes(lists);
  std::vector<Result> results(mixes.size());
  kernels::sampling::Sampler sampler;
  float largest = 0.0f;
  int64_t tokens = 0;
  const auto row_of = [&](size_t row) {
    return std::span(logits).subspan(row * kVocabulary, kVocabulary);
  };
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t i = 0; i < mixes.size(); ++i) {
      if (mixes[i].changes) std::memcpy(logits.data(), original.data(), original.size() * 4);
      // Row by row, each read half a round before it is sampled and the other way round, so that
      // both find it as far from the core; medians over rows leave out those that were interrupted.
      std::vector<double> reads, samples;
      for (size_t row = 0; row < kRows; ++row) {
        SampleOutput output;
        mixes[i].row.seed = row;
        mixes[i].row.output_index = static_cast<uint64_t>(repetition);
        const double start = Seconds();
        largest += ReadForMax(row_of(row));
        const double middle = Seconds();
        sampler.Sample(row_of((row + kRows / 2) % kRows), mixes[i].row, output);
        samples.push_back(1e6 * (Seconds() - middle));
        reads.push_back(1e6 * (middle - start));
        tokens += output.token;
      }
      if (mixes[i].changes) std::memcpy(logits.data(), original.data(), original.size() * 4);
      if (repetition == 0) continue;  // memory is touched for the first time
      results[i].sample_us.push_back(Median(samples));
      results[i].read_us.push_back(Median(reads));
      results[i].ratios.push_back(Median(samples) / Median(reads));
    }
  }
  std::string json = "{";
  for (size_t i = 0; i < mixes.size(); ++i) {
    const double sample = Median(results[i].sample_us);
    const double read = Median(results[i].read_us);
    const double ratio = Median(results[i].ratios);
    std::printf("%-38s %8.1f us per row, %6.1f to read it, %.2f x\n", mixes[i].name, sample, read,
                ratio);
    char entry[256];
    std::snprintf(entry, sizeof(entry),
                  "%s\"%s\": {\"us\": %.2f, \"read_us\": %.2f, \"ratio\": %.3f}",
                  i == 0 ? "" : ", ", mixes[i].name, sample, read, ratio);
    json += entry;
  }
  // What was computed is used, so that none of it is left out.
  std::printf("sums %.1f %lld\n%s}\n", static_cast<double>(largest), static_cast<long long>(tokens),
              json.c_str());
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 15;
  return quire::bench::Run(std::max(2, repetitions));
}
