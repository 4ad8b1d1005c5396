// `quire config show`: the settings that a program would run with, and the source of each value. It
// queries the program itself, which then runs nothing.
#include <algorithm>
#include <cstdio>

#include "cli/commands.h"
#include "cli/model_names.h"
#include "common/config/run_program.h"

namespace quire::cli {
namespace {

constexpr std::string_view kDefaultProgram = "serve";

// The program to query, and its name on the command line.
struct Asked {
  std::string path;
  std::vector<std::string> args;
};

absl::StatusOr<Asked> ProgramOf(const std::string& name) {
  for (const std::string_view sibling : {"router", "worker"}) {
    const std::string full = "quire-" + std::string(sibling);
    if (name == sibling || name == full) return Asked{config::SiblingPath(full), {}};
  }
  std::vector<std::string> names = {"router", "worker"};
  for (const Command& command : Commands()) {
    if (name == command.name) return Asked{config::ExecutablePath(), {name}};
    names.emplace_back(command.name);
  }
  const std::string nearest = config::NearestMatch(name, names);
  return InvalidArgument("PROGRAM: must be router, worker or a command of quire, is '" + name +
                         "'" + (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

bool IsFlag(const std::string& arg) { return arg.starts_with("-"); }

}  // namespace

int RunConfig(const CommandInputs& inputs) {
  std::string action;
  std::string program(kDefaultProgram);
  bool json = false;
  config::Schema schema(
      "quire config",
      "Shows each setting of a program with its value and its source: default, file, "
      "environment or flag. What stands behind PROGRAM is given to it as it stands; nothing is "
      "started.");
  schema.AddPositional({.name = "ACTION", .help = "show.", .target = &action, .choices = {"show"}},
                       true);
  schema.AddPositional({.name = "PROGRAM",
                        .help = "router, worker or a command of quire; its flags follow. [serve]",
                        .target = &program},
                       false);
  schema.Group("Output");
  schema.Add({.name = "json", .help = "Writes JSON; stands before PROGRAM.", .target = &json});
  // Our own flags end at PROGRAM, or at the first flag that is not ours.
  CommandInputs own = inputs;
  const auto is_ours = [](const std::string& arg) {
    return arg == "--json" || arg == "--help" || arg == "-h" || arg == "--describe" ||
           arg.starts_with("--show-config");
  };
  size_t names = 0, end = 0;
  while (end < inputs.args.size() && names < 2) {
    const bool name = !IsFlag(inputs.args[end]);
    if (!name && names > 0 && !is_ours(inputs.args[end])) break;
    names += name ? 1 : 0;
    ++end;
  }
  own.args.resize(end);
  // Variables are settings of the other program, not of this one.
  own.environment.clear();
  if (const std::optional<int> code = Begin(own, schema, "config")) return *code;
  const absl::StatusOr<Asked> asked = ProgramOf(program);
  if (!asked.ok()) return Failed("config", asked.status());
  std::vector<std::string> args = asked->args;
  args.push_back(json ? "--show-config=json" : "--show-config");
  args.insert(args.end(), inputs.args.begin() + static_cast<ptrdiff_t>(end), inputs.args.end());
  return Failed("config", config::Become(asked->path, args, inputs.environment));
}

}  // namespace quire::cli
