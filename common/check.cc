#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire {

void CheckFailed(const char* file, int line, const char* expression, const char* message) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, expression,
               message[0] != '\0' ? ": " : "", message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace quire
