#include "router/ollama/words.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>

#include "common/json/json.h"

namespace quire::ollama {
namespace {

constexpr double kMicrosPerSecond = 1e6;
constexpr std::string_view kDigits = "0123456789.";

struct Unit {
  std::string_view name;
  double seconds;
};
constexpr Unit kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"\xce\xbcs", 1e-6},
                           {"ms", 1e-3}, {"s", 1},     {"m", 60},           {"h", 3600}};

// The name at the front: letters, and not a digit or a point.
std::string_view UnitOf(std::string_view text) {
  return text.substr(0, std::min(text.find_first_of(kDigits), text.size()));
}

}  // namespace

std::string ErrorJson(std::string_view message) {
  std::string out = "{\"error\":";
  json::AppendQuoted(message, out);
  return out + '}';
}

bool IsPath(std::string_view path) {
  constexpr std::string_view kPath = "/api";
  return path.starts_with(kPath) && (path.size() == kPath.size() || path[kPath.size()] == '/');
}

std::string TimeText(int64_t unix_seconds, int64_t micros) {
  const std::time_t seconds = unix_seconds + micros / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const size_t length = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%06dZ", static_cast<int>(micros % 1'000'000));
  return std::string(text, length) + fraction;
}

std::string ParametersText(int64_t count) {
  const double number = static_cast<double>(count);
  char text[32] = "";
  if (count >= 1'000'000'000) {
    std::snprintf(text, sizeof(text), "%.1fB", number / 1e9);
  } else if (count >= 1'000'000) {
    std::snprintf(text, sizeof(text), "%.2fM", number / 1e6);
  } else if (count >= 1000) {
    std::snprintf(text, sizeof(text), "%.0fK", number / 1e3);
  } else if (count > 0) {
    std::snprintf(text, sizeof(text), "%.0f", number);
  }
  return text;
}

int64_t OfSeconds(double seconds) {
  if (seconds < 0) return kForEver;
  const double micros = seconds * kMicrosPerSecond;
  if (!(micros < static_cast<double>(kLongestKeepAlive))) return kLongestKeepAlive;
  return static_cast<int64_t>(micros);
}

std::optional<int64_t> ReadDuration(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  for (bool first = true; !text.empty(); first = false) {
    if (kDigits.find(text.front()) == std::string_view::npos) return std::nullopt;
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(rest - text.data()));
    const std::string_view name = UnitOf(text);
    if (name.empty() && !(first && text.empty())) return std::nullopt;
    const auto* const unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                          [&](const Unit& one) { return one.name == name; });
    if (!name.empty() && unit == std::end(kUnits)) return std::nullopt;
    seconds += number * (name.empty() ? 1 : unit->seconds);
    text.remove_prefix(name.size());
  }
  return OfSeconds(negative && seconds > 0 ? -seconds : seconds);
}

}  // namespace quire::ollama
