#include "common/dialect/scan.h"

#include "common/ascii.h"
#include "common/json/json.h"

namespace quire::dialect {

size_t JsonScan::Take(std::string_view text) {
  size_t at = 0;
  if (!begun_ && !text.empty()) {
    begun_ = true;
    scalar_ = text[0] != '{' && text[0] != '[' && text[0] != '"';
  }
  while (at < text.size() && !done_) {
    const char c = text[at];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        done_ = depth_ == 0;
      }
      ++at;
      continue;
    }
    if (scalar_) {
      done_ = IsBlank(c) || c == ',' || c == '}' || c == ']' || c == '<';
      if (!done_) ++at;
      continue;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') {
      if (depth_ == max_depth_ && !too_deep_) {
        too_deep_ = true;
        return at;
      }
      ++depth_;
    }
    if (c == '}' || c == ']') done_ = --depth_ == 0;
    ++at;
  }
  return at;
}

void AppendUtf8(uint32_t code, std::string& out) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

void JsonText::Unit(std::string& out) {
  if (high_ != 0 && unit_ >= 0xDC00 && unit_ < 0xE000) {
    AppendUtf8(0x10000 + ((high_ - 0xD800) << 10) + (unit_ - 0xDC00), out);
    high_ = 0;
    return;
  }
  if (high_ != 0) AppendUtf8(0xFFFD, out);
  high_ = 0;
  if (unit_ >= 0xD800 && unit_ < 0xDC00) {
    high_ = unit_;
  } else {
    AppendUtf8(unit_, out);
  }
}

void JsonText::Escape(char c, std::string& out) {
  escaped_ = false;
  if (c == 'u') {
    digits_left_ = 4;
    unit_ = 0;
    return;
  }
  if (high_ != 0) AppendUtf8(0xFFFD, out);
  high_ = 0;
  constexpr std::string_view kFrom = "nrtbf\"\\/";
  constexpr std::string_view kTo = "\n\r\t\b\f\"\\/";
  const size_t at = kFrom.find(c);
  if (at == std::string_view::npos) out += '\\';  // no escape of JSON: kept as written
  out += at == std::string_view::npos ? c : kTo[at];
}

size_t JsonText::Take(std::string_view text, std::string& out) {
  size_t at = 0;
  while (at < text.size() && !done_) {
    const char c = text[at];
    if (digits_left_ > 0) {
      const int digit = HexDigit(c);
      if (digit < 0) {  // no escape after all
        unit_ = 0xFFFD;
        digits_left_ = 0;
        Unit(out);
        continue;
      }
      unit_ = unit_ * 16 + static_cast<uint32_t>(digit);
      if (--digits_left_ == 0) Unit(out);
      ++at;
      continue;
    }
    if (escaped_) {
      Escape(c, out);
      ++at;
      continue;
    }
    if (c == '\\') {
      escaped_ = true;
      ++at;
      continue;
    }
    if (high_ != 0) AppendUtf8(0xFFFD, out);
    high_ = 0;
    if (c == '"') {
      done_ = true;
      ++at;
      continue;
    }
    const size_t end = text.find_first_of("\"\\", at);
    out += text.substr(at, end == std::string_view::npos ? end : end - at);
    at = end == std::string_view::npos ? text.size() : end;
  }
  return at;
}

void AppendEscaped(std::string_view text, std::string& out) {
  for (const char c : text) json::AppendEscaped(c, out);
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  AppendEscaped(text, out);
  out += '"';
  return out;
}

Match MatchAt(std::string_view text, std::span<const std::string_view> marks, bool more) {
  Match found;
  for (size_t i = 0; i < marks.size(); ++i) {
    const std::string_view mark = marks[i];
    if (mark.empty()) continue;
    if (text.starts_with(mark)) return {Match::Kind::kMark, i};
    if (more && mark.starts_with(text)) found.kind = Match::Kind::kMaybe;
  }
  return found;
}

}  // namespace quire::dialect
