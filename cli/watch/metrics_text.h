// Prometheus' text format read back: what `quire top` sees of a router.
//
// Pure values and functions. The text is a server's: invalid lines are skipped, and at most
// kMaxSamples are kept.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

inline constexpr size_t kMaxSamples = 200'000;

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels = {};
  double value = 0;
};

class MetricsText {
 public:
  explicit MetricsText(std::string_view text);

  // Of all series of that name whose label, where one is named, has that value; 0 when there are
  // none.
  double Sum(std::string_view name, std::string_view label = {}, std::string_view value = {}) const;
  bool Has(std::string_view name) const;
  // Values of a label among the series of that name, in order, each once.
  std::vector<std::string> LabelValues(std::string_view name, std::string_view label) const;
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  std::vector<Sample> samples_;  // by name, in the order of the text within one name
};

// The quantile `q` of what came into a histogram between two samples, all its series together, as
// Prometheus' histogram_quantile estimates it; negative when nothing came.
double QuantileBetween(const MetricsText& before, const MetricsText& after, std::string_view name,
                       double q);

}  // namespace quire::cli
