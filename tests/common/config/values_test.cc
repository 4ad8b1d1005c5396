#include "common/config/values.h"

#include <gtest/gtest.h>

namespace quire::config {
namespace {

TEST(Values, SizesInEveryUnit) {
  EXPECT_EQ(ParseBytes("0")->value, 0);
  EXPECT_EQ(ParseBytes("1024")->value, 1024);
  EXPECT_EQ(ParseBytes("1k")->value, 1000);
  EXPECT_EQ(ParseBytes("1Ki")->value, 1024);
  EXPECT_EQ(ParseBytes("2MB")->value, 2000000);
  EXPECT_EQ(ParseBytes("512MiB")->value, 512 << 20);
  EXPECT_EQ(ParseBytes("0.5gib")->value, 512 << 20);
  EXPECT_EQ(ParseBytes("1TiB")->value, int64_t{1} << 40);
}

TEST(Values, BadSizes) {
  for (const char* text : {"", "MiB", "-1", "1 MiB", "1.2.3G", "1X", "9999999999TiB",
                           "99999999999999999999", "1e3", "nan", "."}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(Values, Durations) {
  EXPECT_EQ(ParseDuration("30")->milliseconds, 30000);
  EXPECT_EQ(ParseDuration("200ms")->milliseconds, 200);
  EXPECT_EQ(ParseDuration("1.5s")->milliseconds, 1500);
  EXPECT_EQ(ParseDuration("2h")->milliseconds, 7200000);
  for (const char* text : {"", "s", "-1s", "1 s", "1d"})
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
}

TEST(Values, FormatsReadBack) {
  for (const int64_t value : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1024},
                              int64_t{3} << 29, int64_t{1} << 40, (int64_t{1} << 40) + 1}) {
    EXPECT_EQ(ParseBytes(FormatBytes({value}))->value, value) << FormatBytes({value});
    EXPECT_EQ(ParseDuration(FormatDuration({value}))->milliseconds, value)
        << FormatDuration({value});
  }
  EXPECT_EQ(FormatBytes({512 << 20}), "512MiB");
  EXPECT_EQ(FormatDuration({30000}), "30s");
}

TEST(Values, NearestMatch) {
  const std::vector<std::string> names = {"max-model-len", "max-num-seqs", "port", "host"};
  EXPECT_EQ(NearestMatch("max-modle-len", names), "max-model-len");
  EXPECT_EQ(NearestMatch("max-num-seq", names), "max-num-seqs");
  EXPECT_EQ(NearestMatch("hsot", names), "host");
  EXPECT_EQ(NearestMatch("something-else", names), "");
  EXPECT_EQ(NearestMatch("", names), "");
  EXPECT_EQ(NearestMatch(std::string(100000, 'x'), names), "");
}

TEST(Values, Bools) {
  for (const char* text : {"true", "1", "Yes", "ON"}) EXPECT_TRUE(*ParseBool(text));
  for (const char* text : {"false", "0", "no", "off"}) EXPECT_FALSE(*ParseBool(text));
  EXPECT_FALSE(ParseBool("maybe").ok());
  EXPECT_FALSE(ParseBool("").ok());
}

}  // namespace
}  // namespace quire::config
