// How every program begins: reads its settings from arguments and environment, and handles --help,
// --version and errors.
//
// Called once, in main.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"

namespace quire::config {

inline constexpr int kExitDone = 0;
inline constexpr int kExitBadArguments = 2;

// As main got them.
struct CommandLine {
  int argc = 0;
  const char* const* argv = nullptr;
  const char* const* envp = nullptr;
};

struct ProgramStart {
  std::optional<int> exit_code;       // set: there is nothing to run, exit with it
  std::vector<std::string> warnings;  // for the log, one line each
};

// Fills in the settings that `schema` was built for; `check` then checks them together. Help,
// version, the schema (--describe) and the settings (--show-config) go to standard output, an error
// to standard error as one line "program: message".
ProgramStart StartProgram(std::string_view program, Schema& schema, const CommandLine& command,
                          const std::function<absl::Status()>& check);

// Writes "program: message" to standard error; returns `exit_code`.
int Fail(std::string_view program, int exit_code, std::string_view message);

}  // namespace quire::config
