#include "cli/talk/markdown.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::cli {
namespace {

std::string Painted(std::string_view text, MarkdownStyle style, size_t cut = 1000) {
  MarkdownPainter painter(style);
  std::string out;
  for (size_t i = 0; i < text.size(); i += cut) out += painter.Add(text.substr(i, cut));
  return out + painter.Finish();
}

constexpr MarkdownStyle kColours = {.colours = true, .columns = 0};
constexpr MarkdownStyle kNarrow = {.colours = false, .columns = 10};

TEST(Markdown, EmphasisHeadingsAndCodeHaveColoursAtAnyCut) {
  const struct {
    const char *text, *painted;
  } kCases[] = {
      {"plain", "plain"},
      {"a **b** c", "a \x1b[0m\x1b[1mb\x1b[0m c"},
      {"2 * 3 * 4", "2 * 3 * 4"},
      {"* item\n", "* item\n"},
      {"use `x*y` now", "use \x1b[0m\x1b[36mx*y\x1b[0m now"},
      {"## Head\ntext", "\x1b[0m\x1b[1mHead\x1b[0m\ntext"},
      {"#tag", "#tag"},
      {"```py\na = 1\n\n# b\n```\nend",
       "\x1b[36ma = 1\x1b[0m\n\x1b[36m\x1b[0m\n\x1b[36m# b\x1b[0m\nend"},
      {"`` two", "\x1b[0m\x1b[36m\x1b[0m two"},
      {"**open\nnext", "\x1b[0m\x1b[1mopen\x1b[0m\nnext"},
  };
  for (const auto& c : kCases) {
    for (const size_t cut : {1, 2, 3, 1000}) {
      EXPECT_EQ(Painted(c.text, kColours, cut), c.painted) << c.text << " cut at " << cut;
    }
  }
}

TEST(Markdown, WordsWrapAtTheEdgeAndCodeDoesNot) {
  EXPECT_EQ(Painted("one two three four", kNarrow), "one two\nthree four");
  EXPECT_EQ(Painted("äöü äöü äöü", kNarrow), "äöü äöü\näöü");
  EXPECT_EQ(Painted("incomprehensibilities", kNarrow), "incomprehensibilities");
  EXPECT_EQ(Painted("```\nlong long long line\n```\n", kNarrow), "long long long line\n");
  EXPECT_EQ(Painted("a **b** `c`", kNarrow), "a b c");
}

}  // namespace
}  // namespace quire::cli
