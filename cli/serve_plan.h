// What `quire serve` was told, turned into the arguments of its children. Pure: the children's own
// --help says which flags there are.
#pragma once

#include <string>
#include <vector>

#include "cli/model_names.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr int kMaxWorkers = 64;

struct ServePlan {
  bool help = false;  // help_text is to be printed, nothing else is set
  std::string help_text;
  ResolvedModel model;
  int32_t workers = 1;
  std::vector<std::string> router_args;  // without what the supervisor adds: --worker, --ready-fd
  std::vector<std::string> worker_args;  // without --listen, --http-port, --ready-fd
  std::string worker_listen = "127.0.0.1:0";
  std::vector<std::string> warnings;
};

struct ServeInputs {
  std::vector<std::string> args;  // after "serve"
  config::Environment environment;
  std::string router_help;  // of quire-router --help
  std::string worker_help;
  std::vector<std::string> model_folders;
};

// INVALID_ARGUMENT for a wrong flag, NOT_FOUND for an unknown model: one line each.
absl::StatusOr<ServePlan> PlanServe(const ServeInputs& inputs);

}  // namespace quire::cli
