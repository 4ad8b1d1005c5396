// What a program says when the system gives it no more memory or threads: one line, and its end.
#pragma once

#include <string_view>

namespace quire {

// From here on an allocation or a thread that the system refuses ends the process with exit code 1
// and one line on standard error. `program` outlives the process.
void ExplainOutOfMemory(std::string_view program);

}  // namespace quire
