#include "cli/format.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace quire::cli {
namespace {

std::string Scaled(double value, double step, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (std::abs(value) >= step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return NumberText(value) + units[unit];
}

}  // namespace

std::string NumberText(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  int digits = 2;
  if (size >= 100 || value == std::round(value)) {
    digits = 0;
  } else if (size >= 10) {
    digits = 1;
  }
  std::array<char, 64> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

std::string BytesText(double bytes) {
  return Scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string CountText(double value) { return Scaled(value, 1000, {"", "k", "M", "G", "T"}); }

std::string MillisText(double milliseconds) {
  if (milliseconds >= 1000) return NumberText(milliseconds / 1000) + " s";
  if (milliseconds >= 1 || milliseconds <= 0) return NumberText(milliseconds) + " ms";
  return NumberText(milliseconds * 1000) + " µs";
}

namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 0;  // 0: no UTF-8 begins here
};

// The first character of `text`, which is not empty.
Character FirstOf(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t code = lead & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff) return {};
  return {code, bytes};
}

bool IsControl(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string WithoutControls(std::string_view text, std::string_view kept) {
  std::string shown;
  while (!text.empty()) {
    const Character first = FirstOf(text);
    const bool is_kept = first.bytes == 1 && kept.find(text.front()) != std::string_view::npos;
    if (first.bytes == 0 || (IsControl(first.code) && !is_kept)) {
      shown += '?';
    } else {
      shown += text.substr(0, first.bytes);
    }
    text.remove_prefix(std::max<size_t>(first.bytes, 1));
  }
  return shown;
}

std::string PlainText(std::string_view text, size_t most) {
  std::string plain = WithoutControls(text.substr(0, most), "");
  plain.resize(std::min(plain.size(), most));
  return plain;
}

void Show(std::FILE* out, std::string_view text) {
  const std::string plain = isatty(fileno(out)) != 0 ? WithoutControls(text) : std::string(text);
  std::fwrite(plain.data(), 1, plain.size(), out);
}

}  // namespace quire::cli
