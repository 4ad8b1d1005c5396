// `quire list` (also `quire models`) and `quire show`: the models on this machine.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/ask.h"
#include "cli/check/worker_plan.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/models/find_model.h"
#include "cli/models/progress_bar.h"
#include "common/config/run_program.h"

namespace quire::cli {
namespace {

constexpr size_t kMostFilesShown = 40;

int ListServed(const char* command, const AskOptions& server,
               const std::atomic<bool>& interrupted) {
  const auto names = ServedModels(server, interrupted);
  if (!names.ok()) return Failed(command, names.status());
  for (const std::string& name : *names) Show(stdout, name + "\n");
  return 0;
}

int List(const CommandInputs& inputs, const char* command) {
  std::vector<std::string> folders;
  AskOptions server;
  server.url.clear();
  config::Schema schema("quire " + std::string(command),
                        "Lists the models that `quire serve NAME` finds here, or with --url those "
                        "that a server serves.");
  schema.Add({.name = "models-dir", .help = "Further folder of named models.", .target = &folders});
  AddServerFlags(server, schema, "none");
  if (const std::optional<int> code = Begin(inputs, schema, command)) return *code;
  if (!server.url.empty()) {
    TakeKey(inputs.environment, server);
    return ListServed(command, server, *inputs.interrupted);
  }
  const absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, folders, "", *inputs.interrupted);
  if (!finder.ok()) return Failed(command, finder.status());
  const std::vector<NamedModel> models = Library(*finder);
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
  if (models.empty()) std::printf("none; `quire pull` lists models to fetch\n");
  return 0;
}

void ShowFiles(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const auto size = fs::file_size(path, error);
    Show(stdout, "file         " + SizeText(static_cast<double>(error ? 0 : size)) + "\n");
    return;
  }
  std::vector<std::string> lines;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code size_error;
    const auto size = it->file_size(size_error);
    if (size_error || lines.size() >= kMostFilesShown) continue;
    lines.push_back(it->path().filename().string() + "  " + SizeText(static_cast<double>(size)));
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string& line : lines) Show(stdout, "file         " + line + "\n");
}

}  // namespace

int RunList(const CommandInputs& inputs) { return List(inputs, "list"); }
int RunModels(const CommandInputs& inputs) { return List(inputs, "models"); }

int RunShow(const CommandInputs& inputs) {
  std::string name;
  std::vector<std::string> folders;
  config::Schema schema("quire show",
                        "Says what a model on this machine is: where it stands, its files, its "
                        "family, and what it needs to be served.");
  schema.AddPositional(
      {.name = "MODEL", .help = "A name that `quire list` shows, or a path.", .target = &name},
      true);
  schema.Add({.name = "models-dir", .help = "Further folder of named models.", .target = &folders});
  if (const std::optional<int> code = Begin(inputs, schema, "show")) return *code;
  const absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, folders, "", *inputs.interrupted);
  if (!finder.ok()) return Failed("show", finder.status());
  const absl::StatusOr<ResolvedModel> model = FindHere(*finder, name);
  if (!model.ok()) return Failed("show", model.status());
  Show(stdout, "name         " + model->served_name + "\npath         " + model->path + "\n");
  ShowFiles(model->path);
  std::fflush(stdout);
  const absl::StatusOr<config::ProgramOutput> output = config::OutputOf(
      config::SiblingPath("quire-worker"),
      {"--plan", "--plan-bandwidth=1B", "--log-level=error", "--model=" + model->path}, {});
  if (!output.ok()) return Failed("show", output.status());
  if (output->exit_code != 0) return output->exit_code;  // the worker has printed the reason
  const absl::StatusOr<WorkerPlan> plan = ParseWorkerPlan(output->text);
  if (!plan.ok()) return Failed("show", absl::InternalError(plan.status().message()));
  Show(stdout, "family       " + plan->family + "\n");
  const bool is_gguf = plan->quantisation.starts_with("GGUF: ");
  if (!plan->quantisation.empty()) {
    Show(stdout, (is_gguf ? "types        " : "quantised    ") + plan->quantisation + "\n");
  }
  std::printf("context      %lld tokens\nweights      %s in memory\nserve it     quire serve %s\n",
              static_cast<long long>(plan->context),
              BytesText(static_cast<double>(plan->weight_bytes)).c_str(), name.c_str());
  return 0;
}

}  // namespace quire::cli
