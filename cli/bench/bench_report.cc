#include "cli/bench/bench_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "cli/format.h"
#include "common/config/values.h"

namespace quire::cli {
namespace {

constexpr size_t kReportWidth = 50;

std::string Banner(const std::string& title, char fill) {
  const size_t around = kReportWidth > title.size() ? kReportWidth - title.size() : 0;
  return std::string(around / 2, fill) + title + std::string(around - around / 2, fill) + "\n";
}

std::string Row(const std::string& name, const std::string& value) {
  char line[128];
  std::snprintf(line, sizeof(line), "%-40s %-10s\n", name.c_str(), value.c_str());
  return line;
}

std::string Two(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

// "99" and "99.9".
std::string PercentileName(double percentile) { return "p" + config::FormatDouble(percentile); }

struct MetricOf {
  const char* name;
  const char* title;
  const char* short_name;
  const std::vector<double>* values;
};

std::vector<MetricOf> MetricsOf(const BenchMetrics& m) {
  return {{"ttft", "Time to First Token", "TTFT", &m.ttft},
          {"tpot", "Time per Output Token (excl. 1st token)", "TPOT", &m.tpot},
          {"itl", "Inter-token Latency", "ITL", &m.itl},
          {"e2el", "End-to-end Latency", "E2EL", &m.e2el}};
}

bool IsIn(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Tokens by whole seconds of the run.
std::map<int64_t, int64_t> TokensBySecond(const std::vector<BenchResult>& results) {
  std::map<int64_t, int64_t> seconds;
  for (const BenchResult& result : results) {
    for (size_t i = 0; i < result.chunk_times.size(); ++i) {
      seconds[static_cast<int64_t>(result.chunk_times[i])] += result.chunk_tokens[i];
    }
  }
  return seconds;
}

// The most that were under way at once.
int64_t PeakConcurrency(const std::vector<BenchResult>& results) {
  std::vector<std::pair<double, int>> edges;
  for (const BenchResult& result : results) {
    edges.emplace_back(result.start, 1);
    edges.emplace_back(result.start + result.latency, -1);
  }
  std::sort(edges.begin(), edges.end());  // at one time, ends first
  int64_t now = 0, peak = 0;
  for (const auto& [time, change] : edges) peak = std::max(peak, now += change);
  return peak;
}

}  // namespace

absl::StatusOr<std::pair<std::string, double>> ParseGoodput(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const absl::StatusOr<double> bound = colon == std::string::npos
                                           ? absl::StatusOr<double>(InvalidArgument(""))
                                           : config::ParseDouble(text.substr(colon + 1));
  const bool known = name == "ttft" || name == "tpot" || name == "e2el";
  if (known && bound.ok() && *bound >= 0) return std::make_pair(name, *bound);
  return InvalidArgument("--goodput: must be ttft:MS, tpot:MS or e2el:MS, as in ttft:200, is '" +
                         text + "'");
}

Spread SpreadOf(std::vector<double> values, const std::vector<double>& percentiles) {
  Spread spread;
  spread.percentiles.assign(percentiles.size(), 0);
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  const auto at = [&values](double percentile) {
    const double rank = percentile / 100 * static_cast<double>(values.size() - 1);
    const auto low = static_cast<size_t>(rank);
    const size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (rank - static_cast<double>(low));
  };
  const auto count = static_cast<double>(values.size());
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / count);
  spread.median = at(50);
  for (size_t i = 0; i < percentiles.size(); ++i) spread.percentiles[i] = at(percentiles[i]);
  return spread;
}

BenchMetrics MeasureResults(const std::vector<BenchResult>& results, const BenchSettings& settings,
                            double duration) {
  BenchMetrics metrics;
  metrics.duration = std::max(duration, 1e-9);
  for (const BenchResult& result : results) {
    if (!result.success) {
      ++metrics.failed;
      continue;
    }
    ++metrics.completed;
    metrics.input_tokens += result.prompt_tokens;
    metrics.output_tokens += result.output_tokens;
    const double ttft = result.first_token * 1000;
    const double e2el = result.latency * 1000;
    double tpot = 0;
    if (result.output_tokens > 1) {
      tpot = (e2el - ttft) / static_cast<double>(result.output_tokens - 1);
      metrics.tpot.push_back(tpot);
    }
    metrics.ttft.push_back(ttft);
    metrics.e2el.push_back(e2el);
    for (const double gap : result.gaps) metrics.itl.push_back(gap * 1000);
    bool good = true;
    for (const auto& [name, bound] : settings.goodput) {
      const double value = name == "ttft" ? ttft : name == "tpot" ? tpot : e2el;
      good = good && value <= bound;
    }
    metrics.good += good ? 1 : 0;
  }
  for (const auto& [second, tokens] : TokensBySecond(results)) {
    metrics.peak_tokens_per_second =
        std::max(metrics.peak_tokens_per_second, static_cast<double>(tokens));
  }
  metrics.peak_concurrency = PeakConcurrency(results);
  return metrics;
}

std::string BenchReport(const BenchMetrics& m, const BenchSettings& settings) {
  const auto per_second = [&m](int64_t count) {
    return Two(static_cast<double>(count) / m.duration);
  };
  std::string out = Banner(" Serving Benchmark Result ", '=');
  out += Row("Successful requests:", std::to_string(m.completed));
  out += Row("Failed requests:", std::to_string(m.failed));
  if (settings.max_concurrency > 0) {
    out += Row("Maximum request concurrency:", std::to_string(settings.max_concurrency));
  }
  if (settings.request_rate > 0) {
    out += Row("Request rate configured (RPS):", Two(settings.request_rate));
  }
  out += Row("Benchmark duration (s):", Two(m.duration));
  out += Row("Total input tokens:", std::to_string(m.input_tokens));
  out += Row("Total generated tokens:", std::to_string(m.output_tokens));
  out += Row("Request throughput (req/s):", per_second(m.completed));
  if (!settings.goodput.empty()) out += Row("Request goodput (req/s):", per_second(m.good));
  out += Row("Output token throughput (tok/s):", per_second(m.output_tokens));
  out += Row("Peak output token throughput (tok/s):", Two(m.peak_tokens_per_second));
  out += Row("Peak concurrent requests:", Two(static_cast<double>(m.peak_concurrency)));
  out += Row("Total token throughput (tok/s):", per_second(m.input_tokens + m.output_tokens));
  for (const MetricOf& metric : MetricsOf(m)) {
    if (!IsIn(settings.percentile_metrics, metric.name)) continue;
    const Spread spread = SpreadOf(*metric.values, settings.percentiles);
    const std::string name = std::string(metric.short_name) + " (ms):";
    out += Banner(metric.title, '-');
    out += Row("Mean " + name, Two(spread.mean));
    out += Row("Median " + name, Two(spread.median));
    for (size_t i = 0; i < settings.percentiles.size(); ++i) {
      std::string percentile = PercentileName(settings.percentiles[i]);
      percentile[0] = 'P';
      out += Row(percentile + " " + name, Two(spread.percentiles[i]));
    }
  }
  return out + std::string(kReportWidth, '=') + "\n";
}

namespace {

json::Array Numbers(const std::vector<double>& values) {
  json::Array array;
  for (const double value : values) array.emplace_back(value);
  return array;
}

void AddDetails(const std::vector<BenchResult>& results, json::Object& object) {
  json::Array inputs, outputs, first, gaps, texts, errors, starts;
  for (const BenchResult& result : results) {
    inputs.emplace_back(result.prompt_tokens);
    outputs.emplace_back(result.output_tokens);
    first.emplace_back(result.first_token);
    gaps.emplace_back(Numbers(result.gaps));
    texts.emplace_back(result.text);
    errors.emplace_back(result.error);
    starts.emplace_back(result.start);
  }
  object["input_lens"] = std::move(inputs);
  object["output_lens"] = std::move(outputs);
  object["ttfts"] = std::move(first);
  object["itls"] = std::move(gaps);
  object["generated_texts"] = std::move(texts);
  object["errors"] = std::move(errors);
  object["start_times"] = std::move(starts);
}

}  // namespace

json::Object BenchJson(const BenchMetrics& m, const BenchSettings& settings,
                       const std::vector<BenchResult>& results) {
  json::Object object;
  object["endpoint_type"] = settings.backend;
  object["backend"] = settings.backend;
  object["label"] = settings.label.empty() ? settings.backend : settings.label;
  object["base_url"] = settings.url;
  object["model_id"] = settings.model;
  object["num_prompts"] = settings.num_prompts;
  if (settings.request_rate > 0) {
    object["request_rate"] = settings.request_rate;
  } else {
    object["request_rate"] = "inf";
  }
  object["burstiness"] = settings.burstiness;
  if (settings.max_concurrency > 0) {
    object["max_concurrency"] = settings.max_concurrency;
  } else {
    object["max_concurrency"] = nullptr;
  }
  object["duration"] = m.duration;
  object["completed"] = m.completed;
  object["failed"] = m.failed;
  object["total_input_tokens"] = m.input_tokens;
  object["total_output_tokens"] = m.output_tokens;
  object["request_throughput"] = static_cast<double>(m.completed) / m.duration;
  if (settings.goodput.empty()) {
    object["request_goodput"] = nullptr;
  } else {
    object["request_goodput"] = static_cast<double>(m.good) / m.duration;
  }
  object["output_throughput"] = static_cast<double>(m.output_tokens) / m.duration;
  object["total_token_throughput"] =
      static_cast<double>(m.input_tokens + m.output_tokens) / m.duration;
  object["max_output_tokens_per_s"] = m.peak_tokens_per_second;
  object["max_concurrent_requests"] = m.peak_concurrency;
  for (const MetricOf& metric : MetricsOf(m)) {
    if (!IsIn(settings.percentile_metrics, metric.name)) continue;
    const Spread spread = SpreadOf(*metric.values, settings.percentiles);
    const std::string end = "_" + std::string(metric.name) + "_ms";
    object["mean" + end] = spread.mean;
    object["median" + end] = spread.median;
    object["std" + end] = spread.deviation;
    for (size_t i = 0; i < settings.percentiles.size(); ++i) {
      object[PercentileName(settings.percentiles[i]) + end] = spread.percentiles[i];
    }
  }
  if (settings.detailed) AddDetails(results, object);
  return object;
}

}  // namespace quire::cli
