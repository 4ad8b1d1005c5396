// Checks for our own bugs: the process reports what broke and aborts; restart is cheap and the
// router resumes its streams elsewhere. Never used on data from a peer, a client or a file.
#pragma once

namespace quire {

// Writes "file:line: check failed: expression: message" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression,
                              const char* message);

}  // namespace quire

#define QUIRE_CHECK(condition)                                  \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      ::quire::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

// With a sentence (a C string) that states what must hold.
#define QUIRE_CHECK_MSG(condition, message)                            \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::quire::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
