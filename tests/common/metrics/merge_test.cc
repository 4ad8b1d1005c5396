#include "common/metrics/merge.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/metrics/metrics.h"

namespace quire {
namespace {

TEST(MergeMetrics, FamiliesAreOnceAndWholeAndSeriesSayWhoseTheyAre) {
  const std::vector<MetricsPart> parts = {
      {"", "# HELP up Up.\n# TYPE up gauge\nup 1\n# HELP own O.\n# TYPE own counter\nown 2\n"},
      {"0",
       "# HELP rows Rows.\n# TYPE rows gauge\nrows{state=\"a\"} 3\n# HELP up Up.\n# TYPE up "
       "gauge\nup 1\n"},
      {"1", "# HELP rows Rows.\n# TYPE rows gauge\nrows{state=\"a\"} 4\n"}};
  EXPECT_EQ(MergeMetrics(parts),
            "# HELP up Up.\n# TYPE up gauge\nup 1\nup{engine=\"0\"} 1\n"
            "# HELP own O.\n# TYPE own counter\nown 2\n"
            "# HELP rows Rows.\n# TYPE rows gauge\nrows{engine=\"0\",state=\"a\"} 3\n"
            "rows{engine=\"1\",state=\"a\"} 4\n");
}

TEST(MergeMetrics, ALabelThatIsThereIsReplacedAndNothingThatLooksLikeIt) {
  Metrics metrics;
  metrics.AddCounter({"a_total", "A.", {{"model", "x"}, {"engine", "0"}}}).Add(1);
  metrics.AddCounter({"b_total", "B.", {{"name", "},engine=\"0\" \\"}, {"search_engine", "0"}}});
  metrics.AddHistogram({"c_seconds", "C."}, {1}).Observe(0.5);
  const std::vector<MetricsPart> parts = {{"7", metrics.Render()}};
  EXPECT_EQ(
      MergeMetrics(parts),
      "# HELP a_total A.\n# TYPE a_total counter\na_total{model=\"x\",engine=\"7\"} 1\n"
      "# HELP b_total B.\n# TYPE b_total counter\n"
      "b_total{engine=\"7\",name=\"},engine=\\\"0\\\" \\\\\",search_engine=\"0\"} 0\n"
      "# HELP c_seconds C.\n# TYPE c_seconds histogram\n"
      "c_seconds_count{engine=\"7\"} 1\nc_seconds_sum{engine=\"7\"} 0.5\n"
      "c_seconds_bucket{engine=\"7\",le=\"1\"} 1\nc_seconds_bucket{engine=\"7\",le=\"+Inf\"} 1\n");
}

// A scraper refuses a text in which a family has two types.
TEST(MergeMetrics, AFamilyHasOneTypeWhateverAWorkerSays) {
  const std::vector<MetricsPart> parts = {
      {"0", "# TYPE a gauge\n# TYPE a counter\n# HELP a First.\n# HELP a Second.\na 1\n"},
      {"1", "# TYPE a counter\na{engine=\"x\\\"y\",b=\"c\"} 2\n"}};
  EXPECT_EQ(MergeMetrics(parts),
            "# HELP a First.\n# TYPE a gauge\na{engine=\"0\"} 1\na{engine=\"1\",b=\"c\"} 2\n");
}

TEST(MergeMetrics, WhatIsNoMetricsTextIsLeftOut) {
  const std::vector<MetricsPart> parts = {{"0",
                                           "<html>\nrows 1\n# TYPE ro{ws gauge\nro{ws 1\n# TYPE "
                                           "rows gauge\nother 5\nrows\nrows{\nrows{engine=\"\n\n"},
                                          {"1", ""}};
  EXPECT_EQ(MergeMetrics(parts), "# TYPE rows gauge\n");
}

}  // namespace
}  // namespace quire
