// Numbers for people: sizes, times and counts in few digits.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire::cli {

std::string BytesText(double bytes);          // "512 MiB", "1.5 GiB"
std::string NumberText(double value);         // three digits that mean something: "7.25", "1240"
std::string MillisText(double milliseconds);  // "820 µs", "12.3 ms", "4.5 s"
std::string CountText(double value);          // "950", "12.3k", "4.5M"
// `text` without control characters, so that a server cannot speak to the terminal, at most `most`
// bytes of it.
std::string PlainText(const std::string& text, size_t most);

}  // namespace quire::cli
