#include "common/config/program.h"

#include <cstdio>

namespace quire::config {

int Fail(std::string_view program, int exit_code, std::string_view message) {
  const std::string line = std::string(program) + ": " + std::string(message) + "\n";
  std::fputs(line.c_str(), stderr);
  return exit_code;
}

ProgramStart StartProgram(std::string_view program, Schema& schema, const CommandLine& command,
                          const std::function<absl::Status()>& check) {
  const absl::StatusOr<ParseResult> parsed = schema.Parse(
      ArgumentsFromMain(command.argc, command.argv), EnvironmentFromMain(command.envp));
  if (!parsed.ok()) {
    return {Fail(program, kExitBadArguments, StatusMessage(parsed.status())), {}};
  }
  if (parsed->help) {
    std::fputs(schema.HelpText().c_str(), stdout);
    return {kExitDone, {}};
  }
  if (parsed->version) {
    std::printf("%s %s\n", std::string(program).c_str(), QUIRE_VERSION);
    return {kExitDone, {}};
  }
  if (const absl::Status checked = check(); !checked.ok()) {
    return {Fail(program, kExitBadArguments, StatusMessage(checked)), {}};
  }
  return {std::nullopt, parsed->warnings};
}

}  // namespace quire::config
