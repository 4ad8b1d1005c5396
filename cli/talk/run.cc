// `quire run`: pulls a model where it is not here, serves it for as long as it is talked to, and
// talks to it.
#include <unistd.h>

#include <cstdio>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/models/find_model.h"
#include "cli/talk/converse.h"
#include "cli/talk/served_child.h"

namespace quire::cli {
namespace {

struct RunArguments {
  std::string model;
  std::string prompt;
  std::string device = "auto";
  int32_t workers = 1;
  std::vector<std::string> folders;
  AskOptions ask;
  TalkSettings talk;
  std::string chat_template;
};

void AddFlags(RunArguments& run, config::Schema& schema) {
  schema.AddPositional({.name = "MODEL",
                        .help = "A name that `quire list` or `quire pull` shows, "
                                "hf:ORG/REPO or any other name that `quire pull` takes, a "
                                "folder, or a .gguf file.",
                        .target = &run.model},
                       true);
  schema.AddPositional({.name = "PROMPT",
                        .help = "A question; without one it is a conversation.",
                        .target = &run.prompt},
                       false);
  schema.Group("Conversation");
  schema.Add({.name = "system",
              .help = "A system message that opens the conversation.",
              .target = &run.talk.system});
  schema.Add({.name = "max-tokens",
              .help = "Longest answer.",
              .target = &run.ask.max_tokens,
              .default_text = "the server's default"});
  schema.Add({.name = "temperature",
              .help = "0 always takes the likeliest token.",
              .target = &run.ask.temperature,
              .default_text = "the model's default"});
  schema.Add({.name = "seed",
              .help = "The same seed gives the same answer.",
              .target = &run.ask.seed,
              .default_text = "drawn by the server"});
  schema.Group("Serving");
  schema.Add({.name = "device",
              .help = "Where the model runs.",
              .target = &run.device,
              .choices = {"cpu", "cuda", "auto"}});
  schema.Add({.name = "chat-template",
              .help = "Chat template in place of the model's own: a file, or a built-in name as "
                      "chatml (quire serve --help lists them).",
              .target = &run.chat_template,
              .value_name = "FILE|NAME",
              .default_text = "the model's own"});
  schema.Add({.name = "workers",
              .help = "Worker processes.",
              .target = &run.workers,
              .min = 1,
              .max = 64});
  schema.Add(
      {.name = "models-dir", .help = "Further folder of named models.", .target = &run.folders});
}

}  // namespace

int RunModel(const CommandInputs& inputs) {
  RunArguments run;
  run.talk = TalkSettingsFrom(inputs.environment);
  run.talk.command = "run";
  config::Schema schema("quire run",
                        "Pulls a model where it is not here, serves it on a port of its own, and "
                        "asks it PROMPT, or opens a conversation. The server ends with it.");
  AddFlags(run, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "run")) return *code;
  absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, run.folders, "", *inputs.interrupted);
  if (!finder.ok()) return Failed("run", finder.status());
  const absl::StatusOr<ResolvedModel> model = FindOrPull(*finder, run.model);
  if (!model.ok()) return Failed("run", model.status());
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "loading the model…\r");
  std::vector<std::string> args = {model->path,
                                   "--port=0",
                                   "--grpc-port=0",
                                   "--served-model-name=" + model->served_name,
                                   "--device=" + run.device,
                                   "--workers=" + std::to_string(run.workers)};
  if (!run.chat_template.empty()) args.push_back("--chat-template=" + run.chat_template);
  const absl::StatusOr<std::unique_ptr<ServedChild>> served =
      ServedChild::Start(args, inputs.environment, *inputs.interrupted);
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\033[K");
  if (!served.ok()) return Failed("run", served.status());
  run.ask.url = (*served)->url();
  run.ask.model = model->served_name;
  if (run.prompt.empty()) return Converse(run.ask, run.talk, *inputs.interrupted);
  return AskOnce(run.ask, run.prompt, run.talk, *inputs.interrupted);
}

}  // namespace quire::cli
