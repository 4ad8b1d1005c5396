// Output for people: numbers in few digits, and foreign text that cannot control the terminal.
//
// Any thread; all but Show are pure functions.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace quire::cli {

std::string BytesText(double bytes);          // "512 MiB", "1.5 GiB"
std::string NumberText(double value);         // three significant digits: "7.25", "1240"
std::string MillisText(double milliseconds);  // "820 µs", "12.3 ms", "4.5 s"
std::string CountText(double value);          // "950", "12.3k", "4.5M"

// `text` of a model, a server or a file with ? in place of everything that controls a terminal or
// changes the order of reading. These are control characters (C0 but those in `kept`, DEL, C1),
// marks that override or isolate a direction (U+202A to U+202E, U+2066 to U+2069), and bytes that
// are not UTF-8.
std::string WithoutControls(std::string_view text, std::string_view kept = "\n\t");
// A line of it without any, at most `most` bytes long.
std::string PlainText(std::string_view text, size_t most);
// Writes it WithoutControls to a terminal, and as it is to a file or pipe.
void Show(std::FILE* out, std::string_view text);

}  // namespace quire::cli
