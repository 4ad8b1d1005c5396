#include "common/metrics/metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "common/metrics/process_metrics.h"

namespace quire {
namespace {

TEST(Metrics, RendersCountersGaugesAndLabels) {
  Metrics metrics;
  metrics.AddCounter({"quire_steps_total", "Steps."}).Add(3);
  metrics.AddGauge({"quire_rows", "Rows.", {{"state", "running"}}}).Set(2.5);
  metrics.AddGauge({"quire_rows", "", {{"state", "wai\"ting\n"}}}).Set(1);
  EXPECT_EQ(metrics.Render(),
            "# HELP quire_steps_total Steps.\n# TYPE quire_steps_total counter\n"
            "quire_steps_total 3\n"
            "# HELP quire_rows Rows.\n# TYPE quire_rows gauge\n"
            "quire_rows{state=\"running\"} 2.5\n"
            "quire_rows{state=\"wai\\\"ting\\n\"} 1\n");
}

TEST(Metrics, HistogramBucketsAreCumulativeAndBoundsInclusive) {
  Metrics metrics;
  Histogram& histogram = metrics.AddHistogram({"quire_seconds", "S."}, {1, 2});
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.Observe(value);
  EXPECT_EQ(metrics.Render(),
            "# HELP quire_seconds S.\n# TYPE quire_seconds histogram\n"
            "quire_seconds_count 4\nquire_seconds_sum 12\n"
            "quire_seconds_bucket{le=\"1\"} 2\nquire_seconds_bucket{le=\"2\"} 3\n"
            "quire_seconds_bucket{le=\"+Inf\"} 4\n");
}

TEST(Metrics, SecondsAreCountedInMicroseconds) {
  Metrics metrics;
  metrics.AddSecondsCounter({"quire_busy_seconds_total", "B."}).Add(2'500'000);
  EXPECT_NE(metrics.Render().find("quire_busy_seconds_total 2.5\n"), std::string::npos);
}

TEST(Metrics, WhatIsGoneIsNotShown) {
  Metrics metrics;
  Gauge& first = metrics.AddGauge({"quire_up", "U.", {{"worker", "a"}}});
  Gauge& second = metrics.AddGauge({"quire_up", "U.", {{"worker", "b"}}});
  metrics.Remove(first);
  EXPECT_EQ(metrics.Render(),
            "# HELP quire_up U.\n# TYPE quire_up gauge\nquire_up{worker=\"b\"} 0\n");
  metrics.Remove(second);
  EXPECT_EQ(metrics.Render(), "");
  metrics.AddGauge({"quire_up", "U.", {{"worker", "a"}}}).Set(3);  // it came back
  EXPECT_NE(metrics.Render().find("quire_up{worker=\"a\"} 3"), std::string::npos);
}

TEST(Metrics, WhatIsReadWhenRenderedIsFresh) {
  Metrics metrics;
  Gauge& gauge = metrics.AddGauge({"quire_age", "A."});
  metrics.BeforeRender([&gauge] { gauge.Add(1); });
  EXPECT_NE(metrics.Render().find("quire_age 1\n"), std::string::npos);
  EXPECT_NE(metrics.Render().find("quire_age 2\n"), std::string::npos);
}

TEST(Metrics, AProcessTellsOfItself) {
  Metrics metrics;
  AddProcessMetrics(metrics, "quire-test", 1234567);
  const std::string text = metrics.Render();
  EXPECT_NE(text.find("process_start_time_seconds 1234567\n"), std::string::npos) << text;
  EXPECT_NE(text.find("quire_build_info{program=\"quire-test\",version=\""), std::string::npos);
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(value("process_cpu_seconds_total"), 0);
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GT(value("process_max_fds"), value("process_open_fds"));
}

TEST(Metrics, CountsFromManyThreadsAreAllThere) {
  Metrics metrics;
  Counter& counter = metrics.AddCounter({"quire_events_total", "E."});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) counter.Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 4000u);
}

TEST(MetricsDeathTest, OurOwnMistakesDie) {
  Metrics metrics;
  metrics.AddCounter({"quire_a_total", "A."});
  EXPECT_DEATH(metrics.AddCounter({"quire_a_total", "A."}), "twice");
  EXPECT_DEATH(metrics.AddGauge({"quire_a_total", "A."}), "two types");
  EXPECT_DEATH(metrics.AddGauge({"9lives", "A."}), "9lives");
}

}  // namespace
}  // namespace quire
