#include "common/runtime/core_dumps.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace quire {
namespace {

TEST(CoreDumps, ForbiddenOnesAreNeitherWrittenNorReadFromOutside) {
  const pid_t child = fork();
  if (child == 0) {
    ForbidCoreDumps();
    rlimit limit{1, 1};
    getrlimit(RLIMIT_CORE, &limit);
    const bool none = limit.rlim_cur == 0 && limit.rlim_max == 0;
    _exit(none && prctl(PR_GET_DUMPABLE) == 0 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace quire
