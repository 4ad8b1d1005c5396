#include "common/metrics_line.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(MetricsLine, ReadsNameLabelsAndValue) {
  const auto plain = ReadSeries("up 1 1700000000");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->name, "up");
  EXPECT_TRUE(plain->labels.empty());
  EXPECT_EQ(plain->value, "1 1700000000");
  const auto labelled = ReadSeries(R"(a_total{x="q\"}\\",le="+Inf"} 2)");
  ASSERT_TRUE(labelled);
  EXPECT_EQ(labelled->name, "a_total");
  ASSERT_EQ(labelled->labels.size(), 2u);
  EXPECT_EQ(labelled->labels[0].name, "x");
  EXPECT_EQ(labelled->labels[0].value, R"(q\"}\\)");
  EXPECT_EQ(labelled->labels[1].name, "le");
  EXPECT_EQ(labelled->value, "2");
  EXPECT_TRUE(ReadSeries("a{} 1")->labels.empty());
}

TEST(MetricsLine, OtherLinesAreNoSeries) {
  for (const char* line : {"", " ", "{", "# HELP a A.", "a", "a ", "a{", "a{x=", "a{x=\"",
                           "a{x=\"\\", "a{x=\"1\"", "a{x=\"1\"}", "a{x\"1\"} 2"}) {
    EXPECT_FALSE(ReadSeries(line)) << line;
  }
}

}  // namespace
}  // namespace quire
