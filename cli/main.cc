// quire: the command line. Each command is a row of the table below.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>

#include "cli/commands.h"

namespace {

// Set by Ctrl-C; a signal handler can reach nothing else.
std::atomic<bool> g_interrupted = false;

void OnInterrupt(int) { g_interrupted = true; }

struct Command {
  std::string_view name;
  std::string_view help;
  int (*run)(const quire::cli::CommandInputs&);
  bool takes_interrupt;  // Ctrl-C stops an answer, not the program
};

constexpr Command kCommands[] = {
    {"serve", "serve a model on this machine: a router and its workers", quire::cli::RunServe,
     false},
    {"chat", "talk to a served model in the terminal", quire::cli::RunChat, true},
    {"complete", "complete one prompt", quire::cli::RunComplete, true},
    {"models", "list the models that stand on this machine, or that a server serves",
     quire::cli::RunModels, false},
};

void PrintHelp(FILE* out) {
  std::fputs("Usage: quire COMMAND [arguments]\n\n", out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10s %s\n", std::string(command.name).c_str(),
                 std::string(command.help).c_str());
  }
  std::fputs("\nquire COMMAND --help says more. The first steps: quire serve demo\n", out);
}

void ArmInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: a read at the prompt returns
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

int main(int argc, char** argv, char** envp) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "help" || name == "--help" || name == "-h") {
    PrintHelp(name.empty() ? stderr : stdout);
    return name.empty() ? 2 : 0;
  }
  if (name == "--version" || name == "version") {
    std::printf("quire %s\n", QUIRE_VERSION);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    quire::cli::CommandInputs inputs;
    inputs.args.assign(argv + 2, argv + argc);
    inputs.environment = quire::config::EnvironmentFromMain(envp);
    inputs.interrupted = &g_interrupted;
    if (command.takes_interrupt) ArmInterrupt();
    return command.run(inputs);
  }
  std::fprintf(stderr, "quire: unknown command '%s'; there are:", argv[1]);
  for (const Command& command : kCommands) {
    std::fprintf(stderr, " %s", std::string(command.name).c_str());
  }
  std::fputs("\n", stderr);
  return 2;
}
