#include "common/config/program.h"

#include <cstdio>

#include "common/config/describe.h"
#include "common/out_of_memory.h"

namespace quire::config {

int Fail(std::string_view program, int exit_code, std::string_view message) {
  const std::string line = std::string(program) + ": " + std::string(message) + "\n";
  std::fputs(line.c_str(), stderr);
  return exit_code;
}

ProgramStart StartProgram(std::string_view program, Schema& schema, const CommandLine& command,
                          const std::function<absl::Status()>& check) {
  ExplainOutOfMemory(program);
  const absl::StatusOr<ParseResult> parsed = schema.Parse(
      ArgumentsFromMain(command.argc, command.argv), EnvironmentFromMain(command.envp));
  if (!parsed.ok()) {
    return {Fail(program, kExitBadArguments, StatusMessage(parsed.status())), {}};
  }
  if (const std::optional<std::string> answer = AnswerText(schema, *parsed)) {
    std::fputs(answer->c_str(), stdout);
    // Settings that conflict are shown anyway: a conflict is when an operator needs to see them.
    const absl::Status checked = parsed->show_config ? check() : absl::OkStatus();
    if (checked.ok()) return {kExitDone, {}};
    std::fflush(stdout);
    return {Fail(program, kExitBadArguments, StatusMessage(checked)), {}};
  }
  if (const absl::Status checked = check(); !checked.ok()) {
    return {Fail(program, kExitBadArguments, StatusMessage(checked)), {}};
  }
  return {std::nullopt, parsed->warnings};
}

}  // namespace quire::config
