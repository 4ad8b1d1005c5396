// A model's Markdown for a terminal, as it comes: headings and emphasis bold, code in colour, words
// wrapped at the edge.
//
// A value, one thread. The input has no control characters but line ends and tabs; all that is
// written beside it are colours and line ends.
#pragma once

#include <string>
#include <string_view>

namespace quire::cli {

struct MarkdownStyle {
  bool colours = true;
  int columns = 80;  // 0: lines are never wrapped
};

class MarkdownPainter {
 public:
  explicit MarkdownPainter(const MarkdownStyle& style) : style_(style) {}

  // What of the text, and of the one before, can be shown.
  std::string Add(std::string_view text);
  // The rest, with all colours off.
  std::string Finish();

 private:
  enum class Part { kLineStart, kText, kFenceHead, kCode };

  void Take(char c);
  void TakeLineStart(char c);
  void TakeText(char c);
  void TakeCode(char c);
  void EndLine();
  void FlushWord();
  void Plain(std::string_view text);
  void Colour(const char* code);
  void Restyle();

  const MarkdownStyle style_;
  std::string out_;
  std::string begun_;  // of a line whose kind is not known yet
  std::string word_;   // with its colours
  int word_columns_ = 0;
  int column_ = 0;
  int spaces_ = 0;  // before the word; none where the line ends
  Part part_ = Part::kLineStart;
  bool in_fence_ = false;
  bool star_ = false;  // one that may become two
  bool bold_ = false, heading_ = false, code_ = false;
};

}  // namespace quire::cli
