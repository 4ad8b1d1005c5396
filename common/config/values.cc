#include "common/config/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace quire::config {
namespace {

struct Unit {
  std::string_view name;  // lower case
  int64_t factor;
};

constexpr Unit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", 1000},
    {"kb", 1000},
    {"ki", int64_t{1} << 10},
    {"kib", int64_t{1} << 10},
    {"m", 1000000},
    {"mb", 1000000},
    {"mi", int64_t{1} << 20},
    {"mib", int64_t{1} << 20},
    {"g", 1000000000},
    {"gb", 1000000000},
    {"gi", int64_t{1} << 30},
    {"gib", int64_t{1} << 30},
    {"t", 1000000000000},
    {"tb", 1000000000000},
    {"ti", int64_t{1} << 40},
    {"tib", int64_t{1} << 40},
};
constexpr Unit kTimeUnits[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000}, {"h", 3600000},
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown) return "'" + std::string(text) + "'";
  return "'" + std::string(text.substr(0, kShown)) + "…'";
}

// `text` is a non-negative decimal number followed by one of `units`.
absl::StatusOr<int64_t> ParseScaled(std::string_view text, std::span<const Unit> units,
                                    std::string_view expected) {
  const absl::Status error =
      InvalidArgument("must be " + std::string(expected) + ", is " + Quoted(text));
  size_t digits = 0;
  while (digits < text.size() &&
         ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) {
    ++digits;
  }
  const std::string suffix = Lower(text.substr(digits));
  const Unit* unit = nullptr;
  for (const Unit& candidate : units) {
    if (candidate.name == suffix) unit = &candidate;
  }
  if (digits == 0 || unit == nullptr) return error;
  const std::string_view number = text.substr(0, digits);
  int64_t whole = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), whole);
  if (code == std::errc() && end == number.data() + number.size()) {
    int64_t scaled = 0;
    if (__builtin_mul_overflow(whole, unit->factor, &scaled)) return error;
    return scaled;
  }
  const absl::StatusOr<double> fraction = ParseDouble(number);
  if (!fraction.ok()) return error;
  const double scaled = std::round(*fraction * static_cast<double>(unit->factor));
  if (!(scaled < 9.2e18)) return error;
  return static_cast<int64_t>(scaled);
}

std::string FormatScaled(int64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(value) + std::string(units.back().name);
}

}  // namespace

absl::StatusOr<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("must be a whole number, is " + Quoted(text));
  }
  return value;
}

absl::StatusOr<double> ParseDouble(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return InvalidArgument("must be a number, is " + Quoted(text));
  }
  return value;
}

absl::StatusOr<bool> ParseBool(std::string_view text) {
  const std::string lower = Lower(text);
  if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") return true;
  if (lower == "false" || lower == "no" || lower == "off" || lower == "0") return false;
  return InvalidArgument("must be true or false, is " + Quoted(text));
}

absl::StatusOr<Bytes> ParseBytes(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t value,
                         ParseScaled(text, kByteUnits, "a size such as 512MiB or 2GB"));
  return Bytes{value};
}

absl::StatusOr<Duration> ParseDuration(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t value,
                         ParseScaled(text, kTimeUnits, "a duration such as 200ms, 30s or 5m"));
  return Duration{value};
}

std::string FormatBytes(Bytes bytes) {
  static constexpr Unit kShown[] = {{"TiB", int64_t{1} << 40},
                                    {"GiB", int64_t{1} << 30},
                                    {"MiB", int64_t{1} << 20},
                                    {"KiB", int64_t{1} << 10},
                                    {"B", 1}};
  return FormatScaled(bytes.value, kShown);
}

std::string FormatDuration(Duration duration) {
  static constexpr Unit kShown[] = {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
  return FormatScaled(duration.milliseconds, kShown);
}

std::string FormatDouble(double value) {
  std::array<char, 32> buffer;
  const auto [end, code] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return code == std::errc() ? std::string(buffer.data(), end) : "0";
}

}  // namespace quire::config
