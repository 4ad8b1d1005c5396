// `quire run-batch`: answers a file of requests, in OpenAI's batch format, into a file of results.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>

#include "cli/batch/batch_run.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/models/find_model.h"
#include "cli/talk/served_child.h"

namespace quire::cli {
namespace {

constexpr int kExitSomeFailed = 4;

struct RunBatchArguments {
  std::string input, output;
  std::string model;
  std::vector<std::string> served_names;
  std::vector<std::string> folders;
  std::string chat_template;
  std::string device = "auto";
  int32_t workers = 1;
  BatchOptions options;
  config::Duration patience{300'000};
};

void AddFlags(RunBatchArguments& run, config::Schema& schema) {
  schema.Add({.name = "input-file",
              .help = "The requests, one JSON object on each line: custom_id, method, url, body. "
                      "Short: -i.",
              .target = &run.input,
              .value_name = "FILE"});
  schema.Add({.name = "output-file",
              .help = "Gets one line of result for each request, in the order in which they end. "
                      "What it holds already is done: the same command carries on. Short: -o.",
              .target = &run.output,
              .value_name = "FILE"});
  schema.Add({.name = "max-in-flight",
              .help = "Requests under way at once.",
              .target = &run.options.max_in_flight,
              .min = 1,
              .max = static_cast<double>(kMaxBatchInFlight)});
  schema.Add({.name = "priority",
              .help = "Of requests that state none; the lower number goes first, and 0 is what "
                      "other requests have.",
              .target = &run.options.priority,
              .default_text = "behind everything else"});
  schema.Add({.name = "patience",
              .help = "Ends the run when nothing has been answered for so long because the server "
                      "is away or refuses.",
              .target = &run.patience});
  schema.Group("Serving");
  schema.Add({.name = "model",
              .help = "Serves this model as long as the batch runs: a name that `quire list` or "
                      "`quire pull` shows, hf:ORG/REPO, a folder, or a .gguf file.",
              .target = &run.model});
  schema.Add({.name = "served-model-name",
              .help = "Names that requests may have for it.",
              .target = &run.served_names,
              .default_text = "the model's own"});
  schema.Add({.name = "device",
              .help = "Where the model runs.",
              .target = &run.device,
              .choices = {"cpu", "cuda", "auto"}});
  schema.Add({.name = "workers",
              .help = "Worker processes.",
              .target = &run.workers,
              .min = 1,
              .max = 64});
  schema.Add({.name = "chat-template",
              .help = "Chat template in place of the model's own: a file, or a built-in name.",
              .target = &run.chat_template,
              .value_name = "FILE|NAME",
              .default_text = "the model's own"});
  schema.Add(
      {.name = "models-dir", .help = "Further folder of named models.", .target = &run.folders});
  schema.Group("A server that runs");
  run.options.server.url.clear();
  AddServerFlags(run.options.server, schema, "none: --model is served");
}

// vLLM's short names.
std::vector<std::string> LongNames(std::vector<std::string> args) {
  for (std::string& arg : args) {
    if (arg == "--") break;
    if (arg == "-i") arg = "--input-file";
    if (arg == "-o") arg = "--output-file";
  }
  return args;
}

absl::Status Check(const RunBatchArguments& run) {
  if (run.input.empty()) return InvalidArgument("-i FILE is missing: the requests");
  if (run.output.empty()) return InvalidArgument("-o FILE is missing: for the results");
  if (run.model.empty() == run.options.server.url.empty()) {
    return InvalidArgument(
        "give either --model NAME, which is served as long as the batch runs, or --url of a "
        "server that runs");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ServedChild>> Serve(const CommandInputs& inputs,
                                                   RunBatchArguments& run) {
  QUIRE_ASSIGN_OR_RETURN(ModelFinder finder,
                         MakeFinder(inputs.environment, run.folders, "", *inputs.interrupted));
  QUIRE_ASSIGN_OR_RETURN(const ResolvedModel model, FindOrPull(finder, run.model));
  if (run.served_names.empty()) run.served_names = {model.served_name};
  std::vector<std::string> args = {model.path, "--port=0", "--grpc-port=0",
                                   "--device=" + run.device,
                                   "--workers=" + std::to_string(run.workers)};
  for (const std::string& name : run.served_names) args.push_back("--served-model-name=" + name);
  if (!run.chat_template.empty()) args.push_back("--chat-template=" + run.chat_template);
  std::fprintf(stderr, "loading the model…\n");
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<ServedChild> child,
                         ServedChild::Start(args, inputs.environment, *inputs.interrupted));
  run.options.server.url = child->url();
  run.options.server.model = run.served_names.front();
  return child;
}

// One line that is rewritten on a terminal, and a line now and then elsewhere.
class BatchProgress {
 public:
  void Show(const BatchCounts& counts) {
    const auto now = std::chrono::steady_clock::now();
    if (!begun_) {
      begun_ = true;
      begin_ = said_ = now;
      first_ = counts.written;
    }
    if (!is_terminal_ && now - said_ < std::chrono::seconds(10)) return;
    said_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate = seconds > 1 ? static_cast<double>(counts.written - first_) / seconds : 0;
    std::string text = std::to_string(counts.written) + " of " + std::to_string(counts.total) +
                       " done, " + std::to_string(counts.failed) + " failed";
    if (rate > 0) {
      text += ", " + NumberText(rate) + " a second";
      const double left = static_cast<double>(counts.total - counts.written) / rate;
      text += ", " + (left < 120 ? NumberText(std::ceil(left)) + " s left"
                                 : NumberText(std::ceil(left / 60)) + " min left");
    }
    std::fprintf(stderr, is_terminal_ ? "\r%s\033[K" : "%s\n", text.c_str());
    std::fflush(stderr);
  }
  ~BatchProgress() {
    if (is_terminal_ && begun_) std::fputs("\r\033[K", stderr);
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool begun_ = false;
  size_t first_ = 0;  // written before this run
  std::chrono::steady_clock::time_point begin_, said_;
};

absl::Status RunAll(const CommandInputs& inputs, RunBatchArguments& run, BatchCounts& counts) {
  QUIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<batch::BatchInput> input,
      batch::BatchInput::Open({run.input, "-i " + run.input}, {}, *inputs.interrupted));
  QUIRE_ASSIGN_OR_RETURN(
      const std::unique_ptr<batch::BatchOutput> output,
      batch::BatchOutput::Open({run.output, "-o " + run.output}, *inputs.interrupted));
  std::unique_ptr<ServedChild> child;
  // A batch that is complete needs no server.
  if (!run.model.empty() && output->done().size() < input->lines().size()) {
    QUIRE_ASSIGN_OR_RETURN(child, Serve(inputs, run));
  }
  BatchProgress progress;
  run.options.show = [&progress](const BatchCounts& now) { progress.Show(now); };
  return RunBatch(*input, *output, run.options, *inputs.interrupted, counts);
}

}  // namespace

int RunRunBatch(const CommandInputs& inputs) {
  RunBatchArguments run;
  config::Schema schema(
      "quire run-batch",
      "Answers a file of requests in OpenAI's batch format. A run that was stopped, or killed, "
      "carries on when it is started again. Exit codes: 0 all were answered, 4 each has its line "
      "and some failed, 1 some have no line yet.");
  AddFlags(run, schema);
  CommandInputs long_names = inputs;
  long_names.args = LongNames(inputs.args);
  if (const std::optional<int> code = Begin(long_names, schema, "run-batch")) return *code;
  run.options.patience_ms = run.patience.milliseconds;
  TakeKey(inputs.environment, run.options.server);
  if (const absl::Status checked = Check(run); !checked.ok()) return Failed("run-batch", checked);
  BatchCounts counts;
  const absl::Status ended = RunAll(inputs, run, counts);
  if (counts.total > 0 || ended.ok()) {
    std::fprintf(stderr, "%zu of %zu requests have their line in %s; %zu of them failed%s\n",
                 counts.written, counts.total, run.output.c_str(), counts.failed,
                 counts.written < counts.total ? "; the same command carries on" : "");
  }
  if (!ended.ok()) return Failed("run-batch", ended);
  return counts.failed > 0 ? kExitSomeFailed : 0;
}

}  // namespace quire::cli
