#include "common/dialect/literal.h"

#include <algorithm>

#include "common/ascii.h"
#include "common/dialect/scan.h"

namespace quire::dialect {
namespace {

// A number of Python that JSON spells otherwise: `1.`, `.5`, `+5`, `1_000`. Empty: no such number.
std::string PythonNumber(std::string_view text) {
  std::string out;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    if (text[0] == '-') out = "-";
    text.remove_prefix(1);
  }
  if (text.starts_with('.')) out += '0';
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0) continue;
    out += text[i];
    const bool digit = i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '.' && !digit) out += '0';
  }
  const bool numeric = out.find_first_not_of("+-.0123456789eE") == std::string::npos;
  return numeric && IsJson(out) ? out : std::string();
}

std::string PythonValue(std::string_view text) {
  if (text == "True" || text == "true") return "true";
  if (text == "False" || text == "false") return "false";
  if (text == "None" || text == "null") return "null";
  const bool number = !text.empty() && text.find_first_not_of("+-.0123456789eE_") == text.npos;
  if (!number) return Quoted(text);
  if (IsJson(text)) return std::string(text);
  const std::string mended = PythonNumber(text);
  return mended.empty() ? Quoted(text) : mended;
}

std::string BracedValue(std::string_view text, TypeSet types) {
  constexpr TypeSet kAny = kInteger | kNumber | kBoolean | kNull;
  return ValueByTypes(text, types == 0 ? kAny : types);
}

}  // namespace

void Literal::Take(std::string_view& text, bool more, std::string& out) {
  waits_ = false;
  while (!text.empty() && !waits_ && !done() && !broken()) {
    switch (state_) {
      case State::kWant:
        Want(text, more, out);
        break;
      case State::kString:
        StringPart(text, more, out);
        break;
      case State::kEscape:
        Escape(text, out);
        break;
      case State::kDigits:
        Digits(text, out);
        break;
      case State::kBare:
        Bare(text, out);
        break;
      case State::kBehind:
        Behind(text, out);
        break;
      default:
        return;
    }
  }
}

void Literal::Separate(std::string& out) {
  if (comma_) out += ", ";
  comma_ = false;
}

void Literal::Want(std::string_view& text, bool more, std::string& out) {
  const char c = text.front();
  if (IsBlank(c)) {
    text.remove_prefix(1);
    return;
  }
  if (!open_.empty() && (c == ']' || c == ')' || c == '}')) {
    Close(c, out);
    if (!broken()) text.remove_prefix(1);
    return;
  }
  if (!key_ && (c == '{' || c == '[' || (c == '(' && python()))) {
    Open(c, out);
    if (!broken()) text.remove_prefix(1);
    return;
  }
  if (python() && (c == '\'' || c == '"')) {
    BeginString(c, out);
    text.remove_prefix(1);
    return;
  }
  if (!python() && !spelling_.token) {
    const std::string_view marks[] = {spelling_.quote};
    const Match quote = MatchAt(text, marks, more);
    waits_ = quote.kind == Match::Kind::kMaybe;
    if (waits_) return;
    if (quote.kind == Match::Kind::kMark) {
      text.remove_prefix(spelling_.quote.size());
      BeginString(0, out);
      return;
    }
  }
  if (c == ',' || (c == ':' && key_)) {
    state_ = State::kBroken;
    return;
  }
  state_ = State::kBare;
  bare_.clear();
  bare_depth_ = 0;
}

void Literal::TakeQuote(std::string& out) {
  if (state_ == State::kWant) {
    BeginString(0, out);
  } else if (state_ == State::kString) {
    EndString(out);
  } else {
    state_ = State::kBroken;
  }
}

void Literal::BeginString(char quote, std::string& out) {
  Separate(out);
  quote_ = quote;
  out += '"';
  if (key_ && open_.size() == 1) member_.clear();
  state_ = State::kString;
}

void Literal::PutInString(std::string_view text, std::string& out) {
  AppendEscaped(text, out);
  if (!key_ || open_.size() != 1) return;
  member_ +=
      text.substr(0, limits_.max_head_bytes - std::min(member_.size(), limits_.max_head_bytes));
}

void Literal::StringPart(std::string_view& text, bool more, std::string& out) {
  const char c = text.front();
  if (python() && c == quote_) {
    text.remove_prefix(1);
    EndString(out);
    return;
  }
  if (python() && c == '\\') {
    text.remove_prefix(1);
    state_ = State::kEscape;
    return;
  }
  if (!python() && !spelling_.token) {
    const std::string_view marks[] = {spelling_.quote};
    const Match end = MatchAt(text, marks, more);
    waits_ = end.kind == Match::Kind::kMaybe;
    if (waits_) return;
    if (end.kind == Match::Kind::kMark) {
      text.remove_prefix(spelling_.quote.size());
      EndString(out);
      return;
    }
  }
  const char stops[] = {python() ? quote_ : spelling_.quote.front(), '\\', 0};
  const size_t end = text.find_first_of(stops, 1);
  PutInString(text.substr(0, end), out);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end);
}

void Literal::Escape(std::string_view& text, std::string& out) {
  const char c = text.front();
  text.remove_prefix(1);
  state_ = State::kString;
  constexpr std::string_view kFrom = "nrtbfav0\\'\"";
  constexpr std::string_view kTo("\n\r\t\b\f\a\v\0\\'\"", 11);
  if (c == 'x' || c == 'u' || c == 'U') {
    digits_left_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    code_ = 0;
    state_ = State::kDigits;
    return;
  }
  if (c == '\n') return;  // a line that continues
  const size_t at = kFrom.find(c);
  if (at == std::string_view::npos) PutInString("\\", out);  // no escape: kept as written
  PutInString(at == std::string_view::npos ? std::string_view(&c, 1) : kTo.substr(at, 1), out);
}

void Literal::Digits(std::string_view& text, std::string& out) {
  const int digit = HexDigit(text.front());
  if (digit >= 0) {
    code_ = code_ * 16 + static_cast<uint32_t>(digit);
    text.remove_prefix(1);
    if (--digits_left_ > 0) return;
  }
  std::string character;
  AppendUtf8(digit < 0 ? 0xFFFD : code_, character);
  PutInString(character, out);
  state_ = State::kString;
}

void Literal::EndString(std::string& out) {
  out += '"';
  EndValue();
}

void Literal::EndValue() { state_ = open_.empty() ? State::kDone : State::kBehind; }

// Bare text ends at a delimiter outside of its own brackets.
void Literal::Bare(std::string_view& text, std::string& out) {
  const char c = text.front();
  const bool closes = c == ')' || c == ']' || c == '}';
  const bool ends = closes || c == ',' || (key_ && c == ':');
  if ((ends && bare_depth_ == 0) || bare_.size() >= limits_.max_head_bytes) {
    EndBare(out);
    if (!ends) state_ = State::kBroken;
    return;
  }
  if (c == '(' || c == '[' || c == '{') ++bare_depth_;
  if (closes) --bare_depth_;
  bare_ += c;
  text.remove_prefix(1);
}

void Literal::EndBare(std::string& out) {
  Separate(out);
  const std::string_view plain = Trim(bare_, " \t\r\n");
  if (key_) {
    out += Quoted(plain);
    if (open_.size() == 1) member_ = plain;
  } else if (python()) {
    out += PythonValue(plain);
  } else {
    const bool typed = spelling_.types != nullptr && open_.size() == 1;
    out += BracedValue(plain, typed ? spelling_.types->Of(spelling_.function, member_) : 0);
  }
  EndValue();
}

void Literal::Open(char c, std::string& out) {
  if (open_.size() >= limits_.max_nesting) {
    too_deep_ = true;
    state_ = State::kBroken;
    return;
  }
  Separate(out);
  open_.push_back(c);
  out += c == '{' ? '{' : '[';
  key_ = c == '{';
}

void Literal::Close(char c, std::string& out) {
  const char open = c == ']' ? '[' : c == ')' ? '(' : '{';
  if (open_.back() != open) {
    state_ = State::kBroken;
    return;
  }
  comma_ = key_ = false;
  open_.pop_back();
  out += open == '{' ? '}' : ']';
  EndValue();
}

void Literal::Behind(std::string_view& text, std::string& out) {
  const char c = text.front();
  if (IsBlank(c)) {
  } else if (key_ && c == ':') {
    out += ": ";
    key_ = false;
    state_ = State::kWant;
  } else if (!key_ && c == ',') {
    comma_ = true;
    key_ = in_object();
    state_ = State::kWant;
  } else if (!key_ && (c == ']' || c == ')' || c == '}')) {
    Close(c, out);
  } else {
    state_ = State::kBroken;
  }
  if (!broken()) text.remove_prefix(1);
}

void Literal::End(std::string& out) {
  if (state_ == State::kBare) EndBare(out);
}

}  // namespace quire::dialect
