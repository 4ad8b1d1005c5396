#include "common/out_of_memory.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

namespace quire {
namespace {

constexpr int kExitFailed = 1;
std::string_view program_name;
std::terminate_handler usual_end = nullptr;

// Allocates nothing.
void Say(const char* what) {
  char line[512];
  const int size =
      std::snprintf(line, sizeof(line),
                    "%.*s: %s; raise the limit (ulimit, cgroup), or lower the memory flags "
                    "(--help)\n",
                    static_cast<int>(program_name.size()), program_name.data(), what);
  // A line that cannot be written is lost; there is nothing left to do about it.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(size));
}

[[noreturn]] void EndOfAllocation() {
  Say("out of memory: the system gives this process no more");
  _exit(kExitFailed);
}

// An exception that no code catches: the standard library throws for a thread.
[[noreturn]] void EndOfException() {
  if (const std::exception_ptr exception = std::current_exception()) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::bad_alloc&) {
      EndOfAllocation();
    } catch (const std::system_error& error) {
      if (error.code() == std::errc::resource_unavailable_try_again) {
        Say("the system starts no more threads for this process");
        _exit(kExitFailed);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): the usual end says what it is
    }
  }
  if (usual_end != nullptr) usual_end();
  std::abort();
}

}  // namespace

void ExplainOutOfMemory(std::string_view program) {
  program_name = program;
  std::set_new_handler(EndOfAllocation);
  const std::terminate_handler before = std::set_terminate(EndOfException);
  if (before != EndOfException) usual_end = before;
}

}  // namespace quire
