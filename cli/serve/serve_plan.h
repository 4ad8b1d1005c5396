// Turns the arguments of `quire serve` into those of its children. Pure: the flags come from the
// children's own --describe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/model_names.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr int kMaxWorkers = 64;

struct ServePlan {
  std::optional<std::string> answer;  // is to be printed, nothing else is set: --help and its like
  // Those that are named, then those of --models-dir, each name once.
  std::vector<ResolvedModel> models;
  bool required = false;       // the only one that is named: serve is for it, and it stays loaded
  bool load_first = false;     // the first was named
  bool names_by_flag = false;  // --served-model-name is among worker_args
  int32_t workers = 1;
  std::vector<std::string> router_args;  // without what the supervisor adds: --worker, --ready-fd
  // Secrets, which every user of the machine could read off a command line: "QUIRE_API_KEY=…".
  std::vector<std::string> router_environment;
  // Without --model, --served-model-name unless it was given, --listen, --http-port, --ready-fd.
  std::vector<std::string> worker_args;
  std::vector<std::string> worker_environment;
  std::string worker_listen = "127.0.0.1:0";
  std::vector<std::string> warnings;
};

struct ServeInputs {
  std::vector<std::string> args;  // after "serve"
  config::Environment environment;
  config::Description router;  // of quire-router --describe
  config::Description worker;
  std::vector<std::string> model_folders;
  // Finds MODEL, with the folders of --models-dir; ResolveModel in model_folders where it is empty.
  std::function<absl::StatusOr<ResolvedModel>(const std::string& model,
                                              const std::vector<std::string>& folders)>
      find_model = {};
};

// INVALID_ARGUMENT for a wrong flag, NOT_FOUND for an unknown model: one line each.
absl::StatusOr<ServePlan> PlanServe(const ServeInputs& inputs);

}  // namespace quire::cli
