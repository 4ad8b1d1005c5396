#include "common/ascii.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Ascii, HexDigitsOfBothCases) {
  EXPECT_EQ(HexDigit('9'), 9);
  EXPECT_EQ(HexDigit('a'), 10);
  EXPECT_EQ(HexDigit('F'), 15);
  for (const char other : {'g', 'G', '/', ':', '@', '`', '\0', '\xff'}) {
    EXPECT_EQ(HexDigit(other), -1);
  }
}

TEST(Ascii, LettersOfBothCasesAreTheSame) {
  EXPECT_TRUE(EqualsIgnoringCase("Cross-Site", "cross-site"));
  EXPECT_FALSE(EqualsIgnoringCase("a", "ab"));
  EXPECT_FALSE(EqualsIgnoringCase("@", "`")) << "they differ by the bit of the case";
  EXPECT_TRUE(EndsWithIgnoringCase("a.LOCALHOST", ".localhost"));
  EXPECT_FALSE(EndsWithIgnoringCase("localhost", ".localhost"));
}

TEST(Ascii, BlanksAtTheEndsGo) {
  EXPECT_EQ(Trim(" \ta b\t "), "a b");
  EXPECT_EQ(Trim("  "), "");
  EXPECT_EQ(Trim("a\r", " \r"), "a");
  EXPECT_EQ(Trim("a\r"), "a\r");
}

TEST(Ascii, WhatIsNotEncodedStaysAsItIs) {
  EXPECT_EQ(PercentDecode("a%20b%2F%2f"), "a b//");
  for (const char* odd : {"", "%", "%2", "%zz", "100%"}) EXPECT_EQ(PercentDecode(odd), odd);
}

}  // namespace
}  // namespace quire
