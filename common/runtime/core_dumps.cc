#include "common/runtime/core_dumps.h"

#include <sys/prctl.h>
#include <sys/resource.h>

namespace quire {

void ForbidCoreDumps() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);
}

}  // namespace quire
