#include "cli/format.h"

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

std::string PlainText(const std::string& text, size_t most) {
  std::string plain;
  for (const char c : text) {
    if (plain.size() >= most) break;
    plain += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return plain;
}

}  // namespace quire::cli
