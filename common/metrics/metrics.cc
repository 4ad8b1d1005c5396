#include "common/metrics/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <sstream>

#include "common/check.h"
#include "common/sync.h"

namespace quire {
namespace {

bool IsName(std::string_view name, bool colons) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [colons](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (colons && c == ':');
  });
}

using Labels = std::vector<std::pair<std::string, std::string>>;

prometheus::ClientMetric WithLabels(const Labels& labels) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {
  QUIRE_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void Histogram::Observe(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bound - bounds_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<double> LatencyBuckets() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 600};
}

// Families keep the order in which their names first came; series that of adding.
struct Metrics::State {
  template <class Metric>
  struct Series {
    Labels labels;
    std::unique_ptr<Metric> metric;
    double unit = 1;  // what is shown for a count of one
  };
  struct Family {
    std::string name;
    std::string help;
    prometheus::MetricType type;
    std::vector<Series<Counter>> counters;
    std::vector<Series<Gauge>> gauges;
    std::vector<Series<Histogram>> histograms;
  };

  Family& FindFamily(const MetricName& name, prometheus::MetricType type)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    QUIRE_CHECK_MSG(IsName(name.name, true), name.name.c_str());
    for (const auto& [label, value] : name.labels) {
      QUIRE_CHECK_MSG(IsName(label, false), label.c_str());
    }
    for (Family& family : families) {
      if (family.name != name.name) continue;
      QUIRE_CHECK_MSG(family.type == type, "a metric was added with two types");
      return family;
    }
    families.push_back({name.name, name.help, type, {}, {}, {}});
    return families.back();
  }

  template <class Metric>
  static Metric& AddSeries(std::vector<Series<Metric>>& all, const MetricName& name,
                           std::unique_ptr<Metric> metric) {
    for (const Series<Metric>& series : all) {
      QUIRE_CHECK_MSG(series.labels != name.labels, "a metric was added twice");
    }
    all.push_back({name.labels, std::move(metric), 1});
    return *all.back().metric;
  }

  mutable Mutex render_mutex;  // taken before `mutex`
  std::vector<std::function<void()>> updates ABSL_GUARDED_BY(render_mutex);
  mutable Mutex mutex;
  std::deque<Family> families ABSL_GUARDED_BY(mutex);
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::~Metrics() = default;

Counter& Metrics::AddCounter(MetricName name) {
  MutexLock lock(state_->mutex);
  State::Family& family = state_->FindFamily(name, prometheus::MetricType::Counter);
  return State::AddSeries(family.counters, name, std::make_unique<Counter>());
}

Counter& Metrics::AddSecondsCounter(MetricName name) {
  MutexLock lock(state_->mutex);
  State::Family& family = state_->FindFamily(name, prometheus::MetricType::Counter);
  Counter& counter = State::AddSeries(family.counters, name, std::make_unique<Counter>());
  family.counters.back().unit = 1e-6;
  return counter;
}

void Metrics::BeforeRender(std::function<void()> update) {
  MutexLock lock(state_->render_mutex);
  state_->updates.push_back(std::move(update));
}

void Metrics::Remove(const Gauge& gauge) {
  MutexLock lock(state_->mutex);
  for (State::Family& family : state_->families) {
    std::erase_if(family.gauges, [&](const auto& series) { return series.metric.get() == &gauge; });
  }
}

Gauge& Metrics::AddGauge(MetricName name) {
  MutexLock lock(state_->mutex);
  State::Family& family = state_->FindFamily(name, prometheus::MetricType::Gauge);
  return State::AddSeries(family.gauges, name, std::make_unique<Gauge>());
}

Histogram& Metrics::AddHistogram(MetricName name, std::vector<double> bounds) {
  MutexLock lock(state_->mutex);
  State::Family& family = state_->FindFamily(name, prometheus::MetricType::Histogram);
  return State::AddSeries(family.histograms, name, std::make_unique<Histogram>(std::move(bounds)));
}

namespace {

prometheus::ClientMetric::Histogram ReadHistogram(const Histogram& histogram) {
  prometheus::ClientMetric::Histogram read;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    read.sample_count += histogram.bucket(i);
    const double bound = i < histogram.bounds().size() ? histogram.bounds()[i]
                                                       : std::numeric_limits<double>::infinity();
    read.bucket.push_back({read.sample_count, bound});
  }
  read.sample_sum = histogram.sum();
  return read;
}

}  // namespace

std::string Metrics::Render() const {
  {
    MutexLock lock(state_->render_mutex);
    for (const auto& update : state_->updates) update();
  }
  std::vector<prometheus::MetricFamily> families;
  {
    MutexLock lock(state_->mutex);
    for (const State::Family& family : state_->families) {
      prometheus::MetricFamily shown{family.name, family.help, family.type, {}};
      for (const auto& series : family.counters) {
        shown.metric.push_back(WithLabels(series.labels));
        shown.metric.back().counter.value =
            static_cast<double>(series.metric->value()) * series.unit;
      }
      for (const auto& series : family.gauges) {
        shown.metric.push_back(WithLabels(series.labels));
        shown.metric.back().gauge.value = series.metric->value();
      }
      for (const auto& series : family.histograms) {
        shown.metric.push_back(WithLabels(series.labels));
        shown.metric.back().histogram = ReadHistogram(*series.metric);
      }
      if (!shown.metric.empty()) families.push_back(std::move(shown));
    }
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace quire
