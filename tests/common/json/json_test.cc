#include "common/json/json.h"

#include <gtest/gtest.h>

namespace quire::json {
namespace {

TEST(Json, ReadsAndWritesBack) {
  const std::string text =
      R"({"a":[1,-2,3.5,true,null],"b":{"c":"x\n\u00e9"},"d":18446744073709551615})";
  auto value = Parse(text);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(
      Serialize(*value),
      "{\"a\":[1,-2,3.5,true,null],\"b\":{\"c\":\"x\\n\xC3\xA9\"},\"d\":18446744073709551615}");
}

TEST(Json, NamesTheByteOfAnError) {
  auto value = Parse("{\"a\": nope}");
  ASSERT_FALSE(value.ok());
  EXPECT_NE(StatusMessage(value.status()).find("at byte"), std::string::npos);
  EXPECT_FALSE(Parse("").ok());
  EXPECT_FALSE(Parse("{").ok());
  EXPECT_FALSE(Parse("1 2").ok());
  EXPECT_FALSE(Parse("[1,]").ok());
  EXPECT_TRUE(Parse(" 12 ").ok());
}

TEST(Json, WhatPythonAndEditorsWriteIsNamed) {
  const auto why = [](const std::string& text) { return StatusMessage(Parse(text).status()); };
  EXPECT_EQ(why("\xEF\xBB\xBF{}"),
            "JSON begins with a byte order mark; save it as UTF-8 without one");
  for (const std::string name : {"Infinity", "NaN", "-Infinity"}) {
    const std::string said = why("{\"a\": [1.0, " + name + "]}");
    EXPECT_EQ(said, "JSON is malformed at byte " + std::to_string(name[0] == '-' ? 13 : 12) + ": " +
                        (name == "NaN" ? name : "Infinity") +
                        " is no number in JSON; write null, or a number such as 1e308");
  }
  EXPECT_EQ(why("nope").find("Infinity"), std::string::npos);
}

TEST(Json, DepthAtLimitWorksAndLimitPlusOneIsRefused) {
  auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(Parse(nested(64)).ok());
  auto refused = Parse(nested(65));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(Parse(nested(1'000'000)).ok());
}

TEST(Json, SizeAtLimitWorksAndLimitPlusOneIsRefused) {
  Limits limits;
  limits.max_bytes = 10;
  EXPECT_TRUE(Parse("\"12345678\"", limits).ok());
  EXPECT_EQ(Parse("\"123456789\"", limits).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Json, InvalidUtf8IsReplacedWhenWritten) {
  std::string out;
  AppendQuoted("a\xff\xc3(\xe2\x82\xac", out);
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD\xEF\xBF\xBD(\xe2\x82\xac\"");
}

TEST(Json, TypedReadsNameTheField) {
  auto value = Parse(R"({"n": 3.0, "s": "x"})");
  ASSERT_TRUE(value.ok());
  const Object& object = value->get_object();
  EXPECT_EQ(*AsInt(*Find(object, "n"), "n"), 3);
  EXPECT_EQ(Find(object, "absent"), nullptr);
  EXPECT_EQ(StatusMessage(AsInt(*Find(object, "s"), "s").status()),
            "s: must be an integer in the 64-bit range, is a string");
}

}  // namespace
}  // namespace quire::json
