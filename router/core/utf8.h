// UTF-8 at the edge of the router: is it valid, and if not, what is shown instead.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

bool IsValidUtf8(std::string_view bytes);
// Every byte that is no part of a valid character becomes U+FFFD.
std::string ValidUtf8(std::string_view bytes);
// What may stand in a header: nothing in it ends a line, and none of it is a space.
bool IsVisibleAscii(std::string_view bytes);

}  // namespace quire
