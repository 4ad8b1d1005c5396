#include "cli/talk/markdown.h"

#include <algorithm>
#include <utility>

namespace quire::cli {
namespace {

constexpr char kOff[] = "\x1b[0m";
constexpr char kBold[] = "\x1b[1m";
constexpr char kCode[] = "\x1b[36m";

bool IsAll(std::string_view text, char c) {
  return std::all_of(text.begin(), text.end(), [c](char other) { return other == c; });
}

// Bytes that continue a character take no column.
bool TakesColumn(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

void MarkdownPainter::Colour(const char* code) {
  if (style_.colours) word_ += code;
}

void MarkdownPainter::Restyle() {
  Colour(kOff);
  if (bold_ || heading_) Colour(kBold);
  if (code_) Colour(kCode);
}

void MarkdownPainter::Plain(std::string_view text) {
  word_ += text;
  word_columns_ += static_cast<int>(std::count_if(text.begin(), text.end(), TakesColumn));
}

void MarkdownPainter::FlushWord() {
  if (word_.empty()) return;
  if (style_.columns > 0 && column_ > 0 && column_ + spaces_ + word_columns_ > style_.columns) {
    out_ += '\n';
    column_ = spaces_ = 0;
  }
  out_.append(static_cast<size_t>(spaces_), ' ');
  out_ += word_;
  column_ += spaces_ + word_columns_;
  spaces_ = 0;
  word_.clear();
  word_columns_ = 0;
}

void MarkdownPainter::EndLine() {
  if (star_) Plain("*");
  star_ = false;
  if (heading_ || bold_ || code_) {
    heading_ = bold_ = code_ = false;
    Colour(kOff);
  }
  FlushWord();
  out_ += '\n';
  column_ = spaces_ = 0;
  part_ = Part::kLineStart;
}

void MarkdownPainter::TakeLineStart(char c) {
  begun_ += c;
  const bool is_fence = IsAll(begun_, '`');
  if (is_fence && begun_.size() < 3) return;
  if (is_fence) {
    in_fence_ = !in_fence_;
    part_ = Part::kFenceHead;
    begun_.clear();
    return;
  }
  if (!in_fence_ && IsAll(begun_, '#') && begun_.size() <= 6) return;
  const std::string begun = std::exchange(begun_, {});
  part_ = in_fence_ ? Part::kCode : Part::kText;
  if (!in_fence_ && begun.front() == '#' && begun.back() == ' ') {
    heading_ = true;
    Restyle();
    return;
  }
  if (in_fence_) Colour(kCode);
  for (const char one : begun) in_fence_ ? TakeCode(one) : TakeText(one);
}

void MarkdownPainter::TakeCode(char c) {
  if (c != '\n') return Plain({&c, 1});
  Colour(kOff);
  out_ += word_;  // code is never wrapped
  word_.clear();
  word_columns_ = 0;
  EndLine();
}

void MarkdownPainter::TakeText(char c) {
  if (star_ && c == '*' && !code_) {
    star_ = false;
    bold_ = !bold_;
    return Restyle();
  }
  if (star_) Plain("*");
  star_ = c == '*' && !code_;
  if (star_) return;
  if (c == '\n') return EndLine();
  if (c == '`') {
    code_ = !code_;
    return Restyle();
  }
  if (c != ' ') return Plain({&c, 1});
  FlushWord();
  ++spaces_;
}

void MarkdownPainter::Take(char c) {
  switch (part_) {
    case Part::kLineStart:
      return TakeLineStart(c);
    case Part::kText:
      return TakeText(c);
    case Part::kCode:
      return TakeCode(c);
    case Part::kFenceHead:  // the language's name; the line is not shown
      if (c == '\n') part_ = Part::kLineStart;
  }
}

std::string MarkdownPainter::Add(std::string_view text) {
  for (const char c : text) Take(c);
  return std::exchange(out_, {});
}

std::string MarkdownPainter::Finish() {
  Plain(std::exchange(begun_, {}));
  if (std::exchange(star_, false)) Plain("*");
  if (heading_ || bold_ || code_ || in_fence_) Colour(kOff);
  FlushWord();
  heading_ = bold_ = code_ = in_fence_ = false;
  part_ = Part::kLineStart;
  column_ = spaces_ = 0;
  return std::exchange(out_, {});
}

}  // namespace quire::cli
