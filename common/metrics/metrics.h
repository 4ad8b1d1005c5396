// What a program counts and measures, and its text for Prometheus.
//
// main owns one Metrics and passes it down; each part adds its metrics once at the start and keeps
// the references. Adding and Render may be called on any thread (a mutex that no hot path takes);
// Counter, Gauge and Histogram are single atomics: no lock and no allocation per event. A metric
// has one writing thread in this design, so that cells per thread would gain nothing.
//  1. References stay valid as long as the Metrics, or until their series is removed.
//  2. Render sees each value complete, but not all values at one instant.
//  3. Names are fixed in the code; labels come from the code, an operator or a worker, each within
//     a named limit, and never from a client.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace quire {

class Counter {
 public:
  void Add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double change) { value_.fetch_add(change, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<double> value_{0};
};

// Counts per bucket; a value belongs to the first bucket whose upper bound is not below it.
class Histogram {
 public:
  // `bounds` rise strictly; a last bucket up to infinity is added.
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);
  const std::vector<double>& bounds() const { return bounds_; }
  uint64_t bucket(size_t index) const { return counts_[index].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;  // one more than bounds_
  alignas(64) std::atomic<double> sum_{0};
};

// Seconds from 1 ms to 10 min, three per decade.
std::vector<double> LatencyBuckets();

struct MetricName {
  std::string name;  // "quire_worker_steps_total"
  std::string help;
  std::vector<std::pair<std::string, std::string>> labels = {};
};

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // One name may be added several times with different labels; help is the first one's. Aborts on a
  // name that Prometheus would refuse, on the same series twice, and on a name of two types.
  Counter& AddCounter(MetricName name);
  // Counts microseconds and is shown in seconds.
  Counter& AddSecondsCounter(MetricName name);
  Gauge& AddGauge(MetricName name);
  Histogram& AddHistogram(MetricName name, std::vector<double> bounds);
  // Called at the start of each Render, on its thread and one at a time, to set values that would
  // cost too much to keep up to date. It must not call Render or BeforeRender.
  void BeforeRender(std::function<void()> update);
  // Removes the series of something that is gone; a name without series is not shown.
  void Remove(const Gauge& gauge);

  // The text exposition format, version 0.0.4.
  std::string Render() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
