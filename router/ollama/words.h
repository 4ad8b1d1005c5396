// What the answers of Ollama's API share: the shape of errors, times and durations.
//
// Any thread; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::ollama {

// {"error":"message"}
std::string ErrorJson(std::string_view message);

// Whether the path is one of this API.
bool IsPath(std::string_view path);

// "2026-01-31T08:05:09.000042Z".
std::string TimeText(int64_t unix_seconds, int64_t micros = 0);
// A number of parameters: "8.0B", "268.10M", "950K"; empty for none.
std::string ParametersText(int64_t count);
// A time that never comes.
inline constexpr std::string_view kNever = "9999-01-01T00:00:00Z";

// Longer ones, and negative ones, which mean for ever, are cut to these.
inline constexpr int64_t kLongestKeepAlive = int64_t{365} * 24 * 3600 * 1'000'000;
inline constexpr int64_t kForEver = -1;
// "5m", "1h30m", "-1s" or "300", which is seconds, in microseconds. nullopt: it is none of these.
std::optional<int64_t> ReadDuration(std::string_view text);
// Seconds, in microseconds, cut as above.
int64_t OfSeconds(double seconds);

}  // namespace quire::ollama
