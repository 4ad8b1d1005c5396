#include "common/config/yaml_json.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::config {
namespace {

TEST(YamlJson, ScalarsAreTexts) {
  const auto value = JsonOfYaml("a: {b: [1, x, true], c: null}\nd: &name {e: f}\ng: *name\n");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(json::Serialize(*value),
            R"({"a":{"b":["1","x","true"],"c":null},"d":{"e":"f"},"g":{"e":"f"}})");
  EXPECT_TRUE(JsonOfYaml("")->is_null());
  for (const char* text : {"a: [", "a: *none", "? [a]\n: b", "\t- x: {"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(JsonOfYaml(text).status())) << text;
  }
}

TEST(YamlJson, DepthAndCountAreBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth - 1, '[') + "x" + std::string(depth - 1, ']');
  };
  EXPECT_TRUE(JsonOfYaml(nested(kMaxYamlDepth)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(JsonOfYaml(nested(kMaxYamlDepth + 1)).status()));
  std::string list = "[x";
  for (size_t i = 2; i < kMaxYamlValues; ++i) list += ",x";
  EXPECT_TRUE(JsonOfYaml(list + "]").ok());
  EXPECT_TRUE(absl::IsResourceExhausted(JsonOfYaml(list + ",x]").status()));
  // What aliases repeat counts each time: ten lists of ten of the list before.
  std::string bomb = "l0: &l0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string before = "*l" + std::to_string(i - 1);
    bomb += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [" + before;
    for (int j = 1; j < 10; ++j) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_TRUE(absl::IsResourceExhausted(JsonOfYaml(bomb).status()));
}

}  // namespace
}  // namespace quire::config
