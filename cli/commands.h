// The commands of `quire`, one function each: arguments in, exit code out (0 done, 1 failed, 2 bad
// arguments).
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "common/config/schema.h"

namespace quire::cli {

struct CommandInputs {
  std::vector<std::string> args;  // after the command's name
  config::Environment environment;
  std::atomic<bool>* interrupted = nullptr;  // set by Ctrl-C where main arms it
};

int RunServe(const CommandInputs& inputs);
int RunChat(const CommandInputs& inputs);
int RunComplete(const CommandInputs& inputs);
int RunModels(const CommandInputs& inputs);

}  // namespace quire::cli
