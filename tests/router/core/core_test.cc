// Results, statuses and UTF-8.
#include <gtest/gtest.h>

#include <string>

#include "common/utf8.h"
#include "router/core/result.h"

namespace quire {
namespace {

TEST(ResultTest, HoldsAValueOrAnError) {
  const Result<int> value = 5;
  EXPECT_TRUE(value.ok());
  EXPECT_EQ(value.value(), 5);
  const Result<int> error = InvalidField("n", "must be 1");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.error().param, "n");
  EXPECT_EQ(error.error().message, "n: must be 1");
}

TEST(ErrorFromStatusTest, BlamesTheFieldOnlyWhenTheClientIsAtFault) {
  EXPECT_EQ(ErrorFromStatus(absl::InvalidArgumentError("x"), "prompt").param, "prompt");
  EXPECT_EQ(ErrorFromStatus(absl::ResourceExhaustedError("x"), "prompt").code, ApiCode::kTooLarge);
  EXPECT_EQ(ErrorFromStatus(absl::InternalError("x"), "prompt").param, "");
}

TEST(Utf8, ValidTextStays) {
  for (const std::string text : {"", "abc", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                 "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
    EXPECT_EQ(ValidUtf8(text), text);
  }
}

TEST(Utf8, BrokenBytesAreShownAsReplacements) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(ValidUtf8("a\xFF"
                      "b"),
            "a" + mark + "b");
  EXPECT_EQ(ValidUtf8("\xE2\x82"), mark + mark);
  for (const std::string text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                 "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80"}) {
    EXPECT_FALSE(IsValidUtf8(text));
    EXPECT_TRUE(IsValidUtf8(ValidUtf8(text)));
  }
}

TEST(Utf8, ForeignTextIsPutOnOneLine) {
  EXPECT_EQ(OnOneLine("a\nb\x7f", 4), "a?b?");
  EXPECT_EQ(OnOneLine("abcde", 4), "abcd…");
  EXPECT_EQ(OnOneLine("ab\xC3\xA9", 3), "ab\xEF\xBF\xBD…") << "cut inside a character";
}

TEST(Utf8, HeadersHoldVisibleAsciiOnly) {
  EXPECT_TRUE(IsVisibleAscii("worker-0:9000~!"));
  EXPECT_TRUE(IsVisibleAscii(""));
  for (const std::string text : {"a b", "a\nb", "a\r", "\t", "a\x7F", "\xC3\xA9"}) {
    EXPECT_FALSE(IsVisibleAscii(text)) << text;
  }
}

// Plain text is looked over a word at a time: where a character begins in it changes nothing.
TEST(Utf8, WhateverStandsBeforeAndBehind) {
  for (size_t before = 0; before < 20; ++before) {
    for (const std::string text : {"", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xFF", "\xE2\x82"}) {
      for (const std::string behind : {"", "z", "zzzzzzzzzzz"}) {
        const std::string plain(before, 'a');
        EXPECT_EQ(IsValidUtf8(plain + text + behind), IsValidUtf8(text)) << before << text;
        EXPECT_EQ(ValidUtf8(plain + text + behind), plain + ValidUtf8(text) + behind);
      }
    }
  }
}

}  // namespace
}  // namespace quire
