// UTF-8: checks whether it is valid, and replaces what is not; foreign text for people to read.
//
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

bool IsValidUtf8(std::string_view bytes);
// Every byte that is not part of a valid character becomes U+FFFD.
std::string ValidUtf8(std::string_view bytes);
// Foreign text as a part of one line: at most `most` bytes of it, then "…"; valid, and without
// control characters.
std::string OnOneLine(std::string_view text, size_t most);
// Whether a header may contain it: nothing in it ends a line, and none of it is a space.
bool IsVisibleAscii(std::string_view bytes);

}  // namespace quire
