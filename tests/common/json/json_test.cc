#include "common/json/json.h"

#include <gtest/gtest.h>

#include <boost/json/memory_resource.hpp>
#include <boost/json/stream_parser.hpp>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

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

TEST(Json, PythonsInfinityIsReadWhereItIsAskedFor) {
  const auto read = [](const std::string& text) { return Parse(text, {.pythons_infinity = true}); };
  const auto value = read(R"({"Infinity": [0.0, Infinity, -Infinity, "\"Infinity"]})");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Serialize(*value), R"({"Infinity":[0.0,1e+308,-1e+308,"\"Infinity"]})");
  EXPECT_NE(StatusMessage(read("[Infinity, NaN]").status()).find("byte 11: NaN is no number"),
            std::string::npos);
  EXPECT_FALSE(read("[Infinit]").ok());
  EXPECT_FALSE(read("[1Infinity]").ok());
}

TEST(Json, ANumberThatNoDoubleHoldsIsRefusedByItsPlace) {
  const auto why = [](const std::string& text) { return StatusMessage(Parse(text).status()); };
  const auto at = [](size_t byte) {
    return "JSON has a number at byte " + std::to_string(byte) +
           " that is out of range; the largest is about 1.797e308";
  };
  const std::string digits(400, '9');
  EXPECT_EQ(why("1e400"), at(0));
  EXPECT_EQ(why(R"({"1e400": [0, {"a": -1e400}]})"), at(20));
  EXPECT_EQ(why(R"(["\"1e400", 1e308, 1E+309, 1e400])"), at(19));
  EXPECT_EQ(why("[1," + digits + "]"), at(3));
  EXPECT_EQ(Parse("1e400").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Parse("1e99999999999").ok());
  for (const char* text : {"1e308", "-1.7976931348623157e308", "1e-400", "[\"1e400\"]"}) {
    EXPECT_TRUE(Parse(text).ok()) << text;
  }
}

TEST(Json, DepthAtLimitWorksAndLimitPlusOneIsRefused) {
  auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(Parse(nested(64)).ok());
  auto refused = Parse(nested(65));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(Parse(nested(1'000'000)).ok());
}

std::string Zeros(size_t count) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += i > 0 ? ",0" : "0";
  return text + "]";
}

TEST(Json, ValuesAtLimitWorkAndOneMoreIsRefusedBeforeATreeIsBuilt) {
  Limits limits;
  limits.max_values = 101;  // the list and what is in it
  EXPECT_TRUE(Parse(Zeros(100), limits).ok());
  EXPECT_EQ(Parse(Zeros(101), limits).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(Parse("\"" + std::string(1000, ',') + "\"", limits).ok()) << "text is one value";
}

TEST(Json, ATreeIsChargedBeforeItIsBuilt) {
  const std::string text = Zeros(1000);
  const size_t bytes = Measure(text).tree_bytes;
  const auto account = std::make_shared<MemoryAccount>(bytes);
  MemoryHold hold(account);
  Limits limits;
  limits.hold = &hold;
  EXPECT_TRUE(Parse(text, limits).ok());
  EXPECT_EQ(hold.bytes(), bytes);
  EXPECT_EQ(Parse("0", limits).status().code(), absl::StatusCode::kUnavailable);
  hold.Resize(1);
  EXPECT_EQ(Parse(text, limits).status().code(), absl::StatusCode::kUnavailable) << "a byte more";
}

// Counts what is taken from the heap, with what an allocator adds.
class CountingMemory final : public boost::json::memory_resource {
 public:
  size_t most = 0;

 private:
  static size_t Whole(size_t bytes) { return (bytes + 8 + 15) / 16 * 16; }
  void* do_allocate(size_t bytes, size_t) override {
    now_ += Whole(bytes);
    most = std::max(most, now_);
    return std::malloc(bytes);
  }
  void do_deallocate(void* at, size_t bytes, size_t) override {
    now_ -= Whole(bytes);
    std::free(at);
  }
  bool do_is_equal(const boost::json::memory_resource& other) const noexcept override {
    return this == &other;
  }
  size_t now_ = 0;
};

size_t MostBytes(const std::string& text) {
  CountingMemory memory;
  boost::json::parse_options options;
  options.max_depth = 4096;
  boost::json::stream_parser parser(&memory, options);
  parser.reset(&memory);
  parser.write(text);
  parser.finish();
  const boost::json::value value = parser.release();
  return memory.most;
}

TEST(Json, NoTreeTakesMoreThanWasMeasured) {
  const std::string long_text(100'000, 'x');
  std::vector<std::string> texts = {"0",
                                    "\"\"",
                                    "\"" + long_text + "\"",
                                    "\"\\n" + long_text + "\"",
                                    Zeros(3),
                                    Zeros(65'537),
                                    Zeros(200'000),
                                    std::string(2000, '[') + std::string(2000, ']')};
  for (const size_t count : {17u, 1000u, 40'000u}) {
    std::string lists = "[", objects = "[", members = "{", strings = "[", escapes = "[";
    for (size_t i = 0; i < count; ++i) {
      const std::string comma = i > 0 ? "," : "";
      lists += comma + "[]";
      objects += comma + "{\"a\":{}}";
      members += comma + "\"" + std::to_string(i) + "\":0";
      strings += comma + "\"a text of some length\"";
      escapes += comma + "\"\\u0041\\n" + std::string(i % 50, 'y') + "\"";
    }
    for (const std::string& text :
         {lists + "]", objects + "]", members + "}", strings + "]", escapes + "]"}) {
      texts.push_back(text);
    }
  }
  for (const std::string& text : texts) {
    EXPECT_LE(MostBytes(text), Measure(text).tree_bytes)
        << text.substr(0, 40) << " of " << text.size() << " bytes";
  }
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
