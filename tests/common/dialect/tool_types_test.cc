// Values typed by schemas, and tools that cannot be read.
#include "common/dialect/tool_types.h"

#include <gtest/gtest.h>

namespace quire::dialect {
namespace {

TEST(ToolTypes, TypesValuesAsTheyAreWritten) {
  EXPECT_EQ(ValueByTypes("1", kString), "\"1\"");
  EXPECT_EQ(ValueByTypes("1", 0), "\"1\"");
  EXPECT_EQ(ValueByTypes(" 1 ", kInteger), "1");
  EXPECT_EQ(ValueByTypes("1.50", kNumber), "1.50");
  EXPECT_EQ(ValueByTypes("108.", kNumber), "\"108.\"");
  EXPECT_EQ(ValueByTypes("1e400", kNumber), "\"1e400\"");
  EXPECT_EQ(ValueByTypes("True", kBoolean), "true");
  EXPECT_EQ(ValueByTypes("yes", kBoolean), "\"yes\"");
  EXPECT_EQ(ValueByTypes("null", kString | kNull), "null");
  EXPECT_EQ(ValueByTypes("null", kString), "\"null\"");
  EXPECT_EQ(ValueByTypes("none", kInteger | kNull), "\"none\"");
  EXPECT_EQ(ValueByTypes("{\"a\":1.0}", kString | kObject), "{\"a\":1.0}");
  EXPECT_EQ(ValueByTypes("{a}", kObject), "\"{a}\"");
  EXPECT_EQ(ValueByTypes("[1]", kObject), "\"[1]\"");
}

TEST(ToolTypes, ReadsSchemas) {
  const auto types = ToolTypes::FromJson(R"([{"name": "f", "parameters": {"properties": {
      "a": {"type": ["integer", "null"]}, "b": {"oneOf": [{"type": "string"}, {"enum": [1]}]},
      "c": {"$ref": "#/$defs/C"}, "d": {"properties": {}}, "e": {"const": true}, "g": {},
      "h": {"type": "string", "nullable": true}},
      "$defs": {"C": {"$ref": "#/$defs/D"}, "D": {"items": {}}}}},
      {"type": "function", "function": {"name": "g"}}])");
  ASSERT_TRUE(types.ok()) << types.status();
  EXPECT_EQ(types->Of("f", "a"), kInteger | kNull);
  EXPECT_EQ(types->Of("f", "b"), kString | kInteger);
  EXPECT_EQ(types->Of("f", "c"), kArray);
  EXPECT_EQ(types->Of("f", "d"), kObject);
  EXPECT_EQ(types->Of("f", "e"), kBoolean);
  EXPECT_EQ(types->Of("f", "g"), 0);
  EXPECT_EQ(types->Of("f", "h"), kString | kNull);
  EXPECT_EQ(types->Of("g", "a"), 0);
  EXPECT_EQ(types->Of("h", "a"), 0);
}

TEST(ToolTypes, ReadsWhatIsInsideWhereItIsAskedFor) {
  constexpr std::string_view kNested = R"([{"name": "f", "parameters": {"properties": {
      "a": {"type": "object", "properties": {
        "b": {"type": "array", "items": {"$ref": "#/$defs/C"}}}}},
      "$defs": {"C": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
        "d": {"type": "integer"}, "again": {"$ref": "#/$defs/C"}}}]}}}}])";
  EXPECT_TRUE(ToolTypes::FromJson(kNested)->Find("f", "a")->members.empty());
  const auto types = ToolTypes::FromJson(kNested, true);
  ASSERT_TRUE(types.ok()) << types.status();
  const ValueTypes* list = &types->Find("f", "a")->members.at("b");
  EXPECT_EQ(list->types, kArray);
  ASSERT_EQ(list->items.size(), 1);
  const ValueTypes* at = &list->items.front();
  EXPECT_EQ(at->members.at("d").types, kInteger);
  int depth = 2;  // a schema that holds itself ends at the deepest level
  for (; at->members.contains("again"); ++depth) at = &at->members.at("again");
  EXPECT_EQ(depth, kMaxTypedDepth);
  EXPECT_EQ(types->Find("f", "b"), nullptr);
}

size_t CountOf(const ValueTypes& value) {
  size_t count = 1;
  for (const auto& [key, member] : value.members) count += CountOf(member);
  for (const ValueTypes& item : value.items) count += CountOf(item);
  return count;
}

// Twenty members, each of which has the same twenty members.
TEST(ToolTypes, SchemasThatMultiplyHoldLittle) {
  std::string members;
  for (int i = 0; i < 20; ++i) {
    members +=
        std::string(i > 0 ? "," : "") + "\"m" + std::to_string(i) + R"(":{"$ref":"#/$defs/x"})";
  }
  const auto types = [&](size_t padding) {
    return *ToolTypes::FromJson(
        R"([{"name":"f","parameters":{"$defs":{"x":{"type":"object","properties":{)" + members +
            R"(}}},"properties":{"a":{"$ref":"#/$defs/x"}}},"description":")" +
            std::string(padding, 'd') + R"("}])",
        true);
  };
  const size_t few = CountOf(*types(0).Find("f", "a"));
  EXPECT_GT(few, 20u);
  EXPECT_LE(few, 512u);
  EXPECT_LE(CountOf(*types(size_t{100} << 10).Find("f", "a")), (size_t{101} << 10) / 32);
}

TEST(ToolTypes, ReferencesThatTurnInCirclesEnd) {
  const auto types = ToolTypes::FromJson(R"([{"name": "f", "parameters": {"properties": {
      "a": {"$ref": "#/properties/a"}, "b": {"$ref": "elsewhere"}}}}])");
  ASSERT_TRUE(types.ok()) << types.status();
  EXPECT_EQ(types->Of("f", "a"), 0);
  EXPECT_EQ(types->Of("f", "b"), 0);
}

// Each alternative of each level refers to all of the next.
TEST(ToolTypes, AlternativesThatMultiplyEndAtTheirSteps) {
  const auto tools = [](int alternatives) {
    std::string list;
    for (int i = 0; i < alternatives; ++i) {
      list += std::string(i > 0 ? "," : "") + R"({"$ref":"#/$defs/x"})";
    }
    return R"([{"name":"f","parameters":{"$defs":{"x":{"anyOf":[)" + list +
           R"(]}},"properties":{"a":{"$ref":"#/$defs/x"},"b":{"type":"integer"}}}}])";
  };
  const auto few = ToolTypes::FromJson(tools(2));
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->Of("f", "b"), kInteger);
  const auto many = ToolTypes::FromJson(tools(2000));
  EXPECT_TRUE(absl::IsInvalidArgument(many.status()));
  EXPECT_NE(many.status().message().find("tools[0]"), std::string::npos) << many.status();
}

TEST(ToolTypes, RefusesWhatIsNoListOfTools) {
  for (const std::string_view wrong : {"{}", "[1]", "[{}]", "[{\"function\": 1}]", "["}) {
    const auto types = ToolTypes::FromJson(wrong);
    EXPECT_TRUE(absl::IsInvalidArgument(types.status())) << wrong;
  }
}

}  // namespace
}  // namespace quire::dialect
