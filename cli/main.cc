// quire: the command line. The table in cli/commands.cc lists the commands.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "common/config/values.h"

namespace {

using quire::cli::Command;

// Set by Ctrl-C; a signal handler can reach nothing else.
std::atomic<bool> g_interrupted = false;

void OnInterrupt(int) { g_interrupted = true; }

void PrintHelp(FILE* out) {
  std::fputs("Usage: quire COMMAND [arguments]\n\n", out);
  for (const Command& command : quire::cli::Commands()) {
    std::fprintf(out, "  %-12s %s\n", std::string(command.name).c_str(),
                 std::string(command.help).c_str());
  }
  std::fputs("\nquire COMMAND --help says more. The first steps: quire serve demo\n", out);
}

void ArmInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a read at the prompt returns
  sigaction(SIGINT, &action, nullptr);
}

int UnknownCommand(const std::string& name) {
  std::vector<std::string> names = {"help", "version", "--help", "--version"};
  std::string list;
  for (const Command& command : quire::cli::Commands()) {
    names.emplace_back(command.name);
    list += " " + std::string(command.name);
  }
  const std::string nearest = quire::config::NearestMatch(name, names);
  const std::string hint = nearest.empty() ? "" : " did you mean " + nearest + "?";
  std::fprintf(stderr, "quire: unknown command '%s';%s there are:%s\n", name.c_str(), hint.c_str(),
               list.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv, char** envp) {
  std::string name = argc > 1 ? argv[1] : "";
  std::vector<std::string> args(argv + (argc > 1 ? 2 : 1), argv + argc);
  if (name == "help" && !args.empty()) {  // `quire help serve`
    name = args.front();
    args = {"--help"};
  }
  if (name.empty() || name == "help" || name == "--help" || name == "-h") {
    PrintHelp(name.empty() ? stderr : stdout);
    return name.empty() ? 2 : 0;
  }
  if (name == "--version" || name == "version") {
    std::printf("quire %s\n", QUIRE_VERSION);
    return 0;
  }
  for (const Command& command : quire::cli::Commands()) {
    if (command.name != name) continue;
    quire::cli::CommandInputs inputs;
    inputs.args = std::move(args);
    inputs.environment = quire::config::EnvironmentFromMain(envp);
    inputs.interrupted = &g_interrupted;
    if (command.takes_interrupt) ArmInterrupt();
    return command.run(inputs);
  }
  return UnknownCommand(name);
}
