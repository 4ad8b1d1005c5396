#include "cli/watch/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "common/metrics_line.h"

namespace quire::cli {
namespace {

std::optional<double> ReadValue(std::string_view text) {
  text = text.substr(0, text.find(' '));  // a timestamp may follow
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    if (escaped) ++i;
    plain += escaped && text[i] == 'n' ? '\n' : text[i];
  }
  return plain;
}

std::optional<Sample> ReadLine(std::string_view line) {
  const std::optional<SeriesLine> series = ReadSeries(line);
  const std::optional<double> value = series ? ReadValue(series->value) : std::nullopt;
  if (!value) return std::nullopt;
  Sample sample{.name = std::string(series->name), .value = *value};
  for (const auto& [name, text] : series->labels) {
    sample.labels[std::string(name)] = Unescaped(text);
  }
  return sample;
}

// Counts by upper edge, all series of a histogram together.
std::map<double, double> Buckets(const MetricsText& text, const std::string& name) {
  std::map<double, double> buckets;
  for (const Sample& sample : text.samples()) {
    if (sample.name != name) continue;
    const auto edge = sample.labels.find("le");
    const std::optional<double> at =
        edge == sample.labels.end() ? std::nullopt : ReadValue(edge->second);
    if (at) buckets[*at] += sample.value;
  }
  return buckets;
}

}  // namespace

MetricsText::MetricsText(std::string_view text) {
  while (!text.empty() && samples_.size() < kMaxSamples) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (std::optional<Sample> sample = ReadLine(text.substr(0, end))) {
      samples_.push_back(*std::move(sample));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

double MetricsText::Sum(std::string_view name, std::string_view label,
                        std::string_view value) const {
  double sum = 0;
  for (const Sample& sample : samples_) {
    if (sample.name != name) continue;
    if (!label.empty()) {
      const auto found = sample.labels.find(std::string(label));
      if (found == sample.labels.end() || found->second != value) continue;
    }
    if (std::isfinite(sample.value)) sum += sample.value;
  }
  return sum;
}

bool MetricsText::Has(std::string_view name) const {
  return std::any_of(samples_.begin(), samples_.end(),
                     [name](const Sample& sample) { return sample.name == name; });
}

std::vector<std::string> MetricsText::LabelValues(std::string_view name,
                                                  std::string_view label) const {
  std::vector<std::string> values;
  for (const Sample& sample : samples_) {
    if (sample.name != name) continue;
    const auto found = sample.labels.find(std::string(label));
    if (found != sample.labels.end()) values.push_back(found->second);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

double QuantileBetween(const MetricsText& before, const MetricsText& after, std::string_view name,
                       double q) {
  const std::string bucket_name = std::string(name) + "_bucket";
  const std::map<double, double> old = Buckets(before, bucket_name);
  std::vector<std::pair<double, double>> buckets;  // upper edge, count at or below it
  for (const auto& [edge, count] : Buckets(after, bucket_name)) {
    const auto found = old.find(edge);
    buckets.emplace_back(edge, count - (found == old.end() ? 0 : found->second));
  }
  if (buckets.empty() || !(buckets.back().second > 0)) return -1;
  const double rank = q * buckets.back().second;
  double lower = 0, below = 0;
  for (const auto& [edge, count] : buckets) {
    if (count >= rank) {
      if (std::isinf(edge) || count <= below) return lower;
      return lower + (edge - lower) * (rank - below) / (count - below);
    }
    lower = edge;
    below = count;
  }
  return lower;
}

}  // namespace quire::cli
