// Checks for our own bugs: the process says what broke and dies; restart is cheap and the router
// carries its streams on. Never used on what a peer, a client or a file says.
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

// With a sentence (a C string) that says what must hold.
#define QUIRE_CHECK_MSG(condition, message)                            \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::quire::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
