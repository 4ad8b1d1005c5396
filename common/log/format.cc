// The format of a log line.
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

#include "common/json/json.h"
#include "common/log/log.h"

namespace quire {
namespace {

// A prefix of `text` that ends at a whole UTF-8 character, with the count of what was cut.
std::string Shortened(std::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…(+" + std::to_string(text.size() - end) + " bytes)";
}

std::string Quoted(std::string_view text) {
  std::string quoted;
  json::AppendQuoted(text, quoted);
  return quoted;
}

// Values that a reader could mistake for something else are shown as JSON strings.
bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || c == '"' || c == '=' || byte == 0x7F || byte >= 0x80) return true;
  }
  return false;
}

bool HasControlCharacter(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7F) return true;
  }
  return false;
}

std::string TimeText(int64_t unix_micros, const char* format) {
  const std::time_t seconds = unix_micros / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> buffer;
  const size_t length = std::strftime(buffer.data(), buffer.size(), format, &parts);
  return std::string(buffer.data(), length);
}

std::string Digits(int64_t value, size_t width) {
  std::string digits = std::to_string(value);
  return digits.size() >= width ? digits : std::string(width - digits.size(), '0') + digits;
}

}  // namespace

LogValue::LogValue(double value) {
  std::array<char, 32> buffer;
  const auto [end, code] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text.assign(buffer.data(), code == std::errc() ? end : buffer.data());
  bare = std::isfinite(value);
}

std::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "";
}

LogLevel LogLevelFromName(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    if (LogLevelName(level) == name) return level;
  }
  return LogLevel::kInfo;
}

std::string FormatTextLine(int64_t unix_micros, LogLevel level, std::string_view message,
                           std::span<const LogField> fields) {
  std::string line =
      TimeText(unix_micros, "%H:%M:%S") + "." + Digits(unix_micros / 1000 % 1000, 3) + " ";
  line += level == LogLevel::kInfo ? "" : std::string(LogLevelName(level)) + ": ";
  const std::string shown = Shortened(message, kMaxLogValueBytes);
  line += HasControlCharacter(shown) ? Quoted(shown) : shown;
  for (const LogField& field : fields) {
    const std::string value = Shortened(field.value.text, kMaxLogValueBytes);
    std::string part =
        " " + std::string(field.key) + "=" + (NeedsQuotes(value) ? Quoted(value) : value);
    if (line.size() + part.size() > kMaxLogLineBytes) return line;
    line += part;
  }
  return line;
}

std::string FormatJsonLine(int64_t unix_micros, LogLevel level, std::string_view message,
                           std::span<const LogField> fields) {
  std::string line = "{\"ts\":\"" + TimeText(unix_micros, "%Y-%m-%dT%H:%M:%S") + "." +
                     Digits(unix_micros % 1'000'000, 6) + "Z\",\"level\":\"" +
                     std::string(LogLevelName(level)) +
                     "\",\"msg\":" + Quoted(Shortened(message, kMaxLogValueBytes));
  for (const LogField& field : fields) {
    const std::string value = Shortened(field.value.text, kMaxLogValueBytes);
    std::string part = "," + Quoted(field.key) + ":" + (field.value.bare ? value : Quoted(value));
    if (line.size() + part.size() + 1 > kMaxLogLineBytes) break;
    line += part;
  }
  return line + "}";
}

}  // namespace quire
