// What people and programs see while a model loads.
#include "worker/load/progress.h"

#include <gtest/gtest.h>

#include "common/json/json.h"

namespace quire::load {
namespace {

TEST(BytesText, HasThreeDigits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1'000), "1.00 kB");
  EXPECT_EQ(BytesText(12'345), "12.3 kB");
  EXPECT_EQ(BytesText(253'113'024), "253 MB");
  EXPECT_EQ(BytesText(999'999), "1.00 MB");
  EXPECT_EQ(BytesText(16'000'000'000), "16.0 GB");
}

TEST(LoadProgress, JsonLinesCarryRateAndTimeLeft) {
  LoadProgress progress(LoadProgress::Style::kJsonLines);
  ASSERT_TRUE(progress.Update({"pack", 0, 1'000}, 10.0).has_value());
  const std::optional<std::string> line = progress.Update({"pack", 250, 1'000}, 11.0);
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->back(), '\n');
  const absl::StatusOr<json::Value> value = json::Parse(*line);
  ASSERT_TRUE(value.ok()) << value.status();
  const json::Object& object = value->as_object();
  EXPECT_EQ(object.at("phase").as_string(), "pack");
  EXPECT_EQ(object.at("done_bytes").as_int64(), 250);
  EXPECT_EQ(object.at("total_bytes").as_int64(), 1'000);
  EXPECT_EQ(object.at("bytes_per_second").to_number<double>(), 250.0);
  EXPECT_EQ(object.at("eta_seconds").to_number<double>(), 3.0);
}

TEST(LoadProgress, SpeaksSeldomButAlwaysAtTheEnd) {
  LoadProgress progress(LoadProgress::Style::kJsonLines);
  EXPECT_TRUE(progress.Update({"pack", 0, 10}, 0.0).has_value());
  EXPECT_FALSE(progress.Update({"pack", 1, 10}, 0.01).has_value());
  EXPECT_TRUE(progress.Update({"pack", 10, 10}, 0.02).has_value());
  EXPECT_FALSE(progress.Update({"pack", 10, 10}, 9.0).has_value());
  EXPECT_TRUE(progress.Update({"warm", 0, 10}, 9.0).has_value());
}

TEST(LoadProgress, BarIsRedrawnInPlace) {
  LoadProgress progress(LoadProgress::Style::kBar);
  EXPECT_TRUE(progress.Update({"pack", 0, 1'000'000}, 0.0).has_value());
  const std::optional<std::string> half = progress.Update({"pack", 500'000, 1'000'000}, 1.0);
  ASSERT_TRUE(half.has_value());
  EXPECT_EQ(half->front(), '\r');
  EXPECT_NE(half->find("###############..............."), std::string::npos) << *half;
  EXPECT_NE(half->find("50%"), std::string::npos);
  EXPECT_NE(half->find("500 kB/s"), std::string::npos);
  EXPECT_NE(half->find("1 s left"), std::string::npos);
  EXPECT_EQ(half->find('\n'), std::string::npos);
  const std::optional<std::string> end = progress.Update({"pack", 1'000'000, 1'000'000}, 2.0);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->back(), '\n');
  EXPECT_NE(end->find("100%"), std::string::npos);
}

TEST(LoadProgress, NothingToDoIsDone) {
  LoadProgress progress(LoadProgress::Style::kBar);
  const std::optional<std::string> line = progress.Update({"pack", 0, 0}, 1.0);
  ASSERT_TRUE(line.has_value());
  EXPECT_NE(line->find("100%"), std::string::npos);
}

}  // namespace
}  // namespace quire::load
