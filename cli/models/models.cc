// `quire models`: the models that can be served by name on this machine.
#include <algorithm>
#include <cstdio>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/model_names.h"

namespace quire::cli {
namespace {

int ListServed(const AskOptions& server, const std::atomic<bool>& interrupted) {
  const auto names = ServedModels(server, interrupted);
  if (!names.ok()) return Failed("models", names.status());
  for (const std::string& name : *names) Show(stdout, name + "\n");
  return 0;
}

}  // namespace

int RunModels(const CommandInputs& inputs) {
  std::vector<std::string> folders;
  AskOptions server;
  server.url.clear();
  config::Schema schema("quire models",
                        "Lists the models that `quire serve NAME` finds here, or with --url those "
                        "that a server serves.");
  config::Flag models_dir;
  models_dir.name = "models-dir";
  models_dir.help = "Further folder of named models.";
  models_dir.target = &folders;
  schema.Add(models_dir);
  AddServerFlags(server, schema, "none");
  if (const std::optional<int> code = Begin(inputs, schema, "models")) return *code;
  if (!server.url.empty()) {
    TakeKey(inputs.environment, server);
    return ListServed(server, *inputs.interrupted);
  }
  for (const std::string& folder : ModelFolders(ExecutablePath())) folders.push_back(folder);
  const std::vector<NamedModel> models = ListModels(folders);
  size_t width = 4;
  for (const NamedModel& model : models) width = std::max(width, model.name.size());
  std::printf("%-*s  %9s  %s\n", static_cast<int>(width), "NAME", "WEIGHTS", "PATH");
  for (const NamedModel& model : models) {
    char size[32];
    std::snprintf(size, sizeof(size), "  %6.1f MB  ", static_cast<double>(model.bytes) / 1e6);
    std::string name = model.name;
    name.resize(width, ' ');
    Show(stdout, name + size + model.path + "\n");
  }
  if (models.empty()) std::printf("none; ./dev model gemma3-270m fetches one\n");
  return 0;
}

}  // namespace quire::cli
