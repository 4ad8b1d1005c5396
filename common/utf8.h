// UTF-8: checks whether it is valid, and replaces what is not.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

bool IsValidUtf8(std::string_view bytes);
// Every byte that is not part of a valid character becomes U+FFFD.
std::string ValidUtf8(std::string_view bytes);
// Whether a header may contain it: nothing in it ends a line, and none of it is a space.
bool IsVisibleAscii(std::string_view bytes);

}  // namespace quire
