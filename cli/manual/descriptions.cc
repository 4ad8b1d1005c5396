#include "cli/manual/descriptions.h"

#include "cli/commands.h"
#include "cli/model_names.h"
#include "common/config/describe.h"
#include "common/config/run_program.h"

namespace quire::cli {

absl::StatusOr<config::Description> DescribeProgram(const std::string& program,
                                                    const std::string& command) {
  std::vector<std::string> args;
  if (!command.empty()) args.push_back(command);
  args.push_back("--describe");
  QUIRE_ASSIGN_OR_RETURN(const std::string text, config::TextOf(program, args));
  absl::StatusOr<config::Description> description = config::ParseDescription(text);
  if (!description.ok()) return Annotate(description.status(), program);
  return description;
}

absl::StatusOr<std::vector<config::Description>> DescribeAll() {
  std::vector<config::Description> all;
  const auto ask = [&all](const std::string& program, const std::string& command) -> absl::Status {
    QUIRE_ASSIGN_OR_RETURN(config::Description description, DescribeProgram(program, command));
    all.push_back(std::move(description));
    return absl::OkStatus();
  };
  for (const Command& command : Commands()) {
    QUIRE_RETURN_IF_ERROR(ask(config::ExecutablePath(), std::string(command.name)));
  }
  QUIRE_RETURN_IF_ERROR(ask(config::SiblingPath("quire-router"), ""));
  QUIRE_RETURN_IF_ERROR(ask(config::SiblingPath("quire-worker"), ""));
  return all;
}

}  // namespace quire::cli
