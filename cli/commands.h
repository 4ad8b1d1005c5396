// The commands of `quire`, one function each: arguments in, exit code out (0 done, 1 failed, 2 bad
// arguments), and the one table of them.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/schema.h"

namespace quire::cli {

struct CommandInputs {
  std::vector<std::string> args;  // after the command's name
  config::Environment environment;
  std::atomic<bool>* interrupted = nullptr;  // set by Ctrl-C where main arms it
};

struct Command {
  std::string_view name;
  std::string_view help;
  int (*run)(const CommandInputs&);
  bool takes_interrupt;  // the command handles Ctrl-C; otherwise Ctrl-C ends the program
};
std::span<const Command> Commands();

int RunServe(const CommandInputs& inputs);
int RunChat(const CommandInputs& inputs);
int RunComplete(const CommandInputs& inputs);
int RunPull(const CommandInputs& inputs);
int RunModel(const CommandInputs& inputs);
int RunList(const CommandInputs& inputs);
int RunModels(const CommandInputs& inputs);
int RunShow(const CommandInputs& inputs);
int RunCopy(const CommandInputs& inputs);
int RunRemove(const CommandInputs& inputs);
int RunProcesses(const CommandInputs& inputs);
int RunPlan(const CommandInputs& inputs);
int RunDoctor(const CommandInputs& inputs);
int RunTop(const CommandInputs& inputs);
int RunTrace(const CommandInputs& inputs);
int RunBench(const CommandInputs& inputs);
int RunMakeWeights(const CommandInputs& inputs);
int RunRunBatch(const CommandInputs& inputs);
int RunQuantise(const CommandInputs& inputs);
int RunParse(const CommandInputs& inputs);
int RunConfig(const CommandInputs& inputs);
int RunCompletion(const CommandInputs& inputs);
int RunManual(const CommandInputs& inputs);

// Settings from the arguments. An exit code where there is nothing left to do: --help and its like
// were answered, or a flag refused, in one line that begins "quire NAME: ".
std::optional<int> Begin(const CommandInputs& inputs, config::Schema& schema,
                         std::string_view name);

// One line on standard error. 2 for INVALID_ARGUMENT, 3 for NOT_FOUND, 130 for CANCELLED, else 1.
int Failed(std::string_view name, const absl::Status& status);

}  // namespace quire::cli
