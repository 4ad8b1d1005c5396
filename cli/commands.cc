#include "cli/commands.h"

#include <cstdio>

#include "cli/format.h"
#include "common/config/describe.h"
#include "common/status.h"

namespace quire::cli {
namespace {

constexpr Command kCommands[] = {
    {"serve", "serve a model on this machine: a router and its workers", RunServe, false},
    {"chat", "talk to a served model in the terminal", RunChat, true},
    {"complete", "complete one prompt", RunComplete, true},
    {"run", "pull a model, serve it and talk to it", RunModel, true},
    {"pull", "bring a model to this machine, or list those that have short names", RunPull, true},
    {"list", "list the models on this machine, or those that a server serves", RunList, true},
    {"models", "the same as list", RunModels, true},
    {"ps", "list the models that a server serves, and what they do", RunProcesses, true},
    {"show", "say what a model is: files, sizes, family, template", RunShow, true},
    {"cp", "give a model another name", RunCopy, true},
    {"rm", "take a model that was pulled off this machine", RunRemove, true},
    {"plan", "what a model takes before it is loaded: memory, largest context and batch, speed",
     RunPlan, false},
    {"doctor", "look whether this machine can serve, and say what to do", RunDoctor, true},
    {"top", "watch a server: its workers, queues, batches, caches and tokens", RunTop, true},
    {"bench", "generate load and report how fast a server answers", RunBench, true},
    {"run-batch", "answer a file of requests, in OpenAI's batch format", RunRunBatch, true},
    {"trace", "show the life of one request", RunTrace, true},
    {"make-weights", "write a model of a true shape whose weights come from a seed", RunMakeWeights,
     true},
    {"quantize", "write a smaller, quantised copy of a model in floats", RunQuantise, true},
    {"parse", "take a model's raw answer apart: text, thoughts and tool calls", RunParse, false},
    {"config", "show each setting of a program, and its source", RunConfig, false},
    {"completion", "write the completions for bash, zsh or fish", RunCompletion, false},
    {"man", "write the manual pages", RunManual, false},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

std::optional<int> Begin(const CommandInputs& inputs, config::Schema& schema,
                         std::string_view name) {
  const absl::StatusOr<config::ParseResult> parsed = schema.Parse(inputs.args, inputs.environment);
  if (!parsed.ok()) return Failed(name, parsed.status());
  const std::optional<std::string> answer = config::AnswerText(schema, *parsed);
  if (!answer) return std::nullopt;
  std::fputs(answer->c_str(), stdout);
  return 0;
}

int Failed(std::string_view name, const absl::Status& status) {
  const std::string line = "quire " + std::string(name) + ": " + StatusMessage(status) + "\n";
  Show(stderr, line);
  if (absl::IsInvalidArgument(status)) return 2;
  if (absl::IsNotFound(status)) return 3;
  return absl::IsCancelled(status) ? 130 : 1;
}

}  // namespace quire::cli
