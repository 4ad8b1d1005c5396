// `quire chat` and `quire complete`: a conversation in the terminal, and one completion.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/talk/answer_form.h"
#include "cli/talk/converse.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxInputBytes = 1u << 20;

void AddAskFlags(AskOptions& options, config::Schema& schema) {
  const auto add = [&](const char* name, const char* help, config::Target target,
                       const char* shown) {
    config::Flag flag;
    flag.name = name;
    flag.help = help;
    flag.target = target;
    flag.default_text = shown;
    schema.Add(flag);
  };
  AddServerFlags(options, schema, "http://127.0.0.1:8000");
  add("model", "A model that the server lists.", &options.model, "the first one");
  add("temperature", "0 always takes the likeliest token.", &options.temperature,
      "the model's default");
  add("top-p", "Keeps the likeliest tokens up to this mass.", &options.top_p,
      "the model's default");
  add("max-tokens", "Longest answer.", &options.max_tokens, "the server's default");
  add("seed", "The same seed gives the same answer.", &options.seed, "drawn by the server");
}

// The tools of a file, in OpenAI's shape.
absl::StatusOr<json::Array> ReadTools(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  absl::StatusOr<json::Value> value = json::Parse(text);
  if (!value.ok() || !value->is_array()) {
    return InvalidArgument("--tools: " + path +
                           " must hold a list of tools: [{\"type\": \"function\", \"function\": "
                           "{\"name\": \"get_weather\", \"parameters\": {}}}]");
  }
  return std::move(value->get_array());
}

}  // namespace

int RunComplete(const CommandInputs& inputs) {
  AskOptions options;
  AnswerForm form;
  std::string prompt;
  config::Schema schema("quire complete", "Completes a prompt and prints the text as it comes.");
  config::Flag positional;
  positional.name = "PROMPT";
  positional.help = "The prompt; \"-\" reads it from standard input.";
  positional.target = &prompt;
  schema.AddPositional(positional, true);
  schema.Group("Completion");
  AddAskFlags(options, schema);
  AddFormFlags(form, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "complete")) return *code;
  TakeKey(inputs.environment, options);
  json::Object body;
  if (const absl::Status set = SetForm(form, body); !set.ok()) return Failed("complete", set);
  if (prompt == "-") {
    prompt.clear();
    char buffer[4096];
    while (prompt.size() < kMaxInputBytes && std::cin.read(buffer, sizeof(buffer)).gcount() > 0) {
      prompt.append(buffer, std::cin.gcount());
    }
  }
  if (options.model.empty()) {
    auto model = FirstModel(options, *inputs.interrupted);
    if (!model.ok()) return Failed("complete", model.status());
    options.model = *model;
  }
  body["model"] = options.model;
  body["prompt"] = prompt;
  body["stream"] = true;
  SetSampling(options, body);
  AnswerText answer(false);
  const absl::Status asked = Ask(options, "/v1/completions", body, *inputs.interrupted, answer);
  std::fputs("\n", stdout);
  if (absl::IsCancelled(asked)) return 130;
  return asked.ok() ? 0 : Failed("complete", asked);
}

int RunChat(const CommandInputs& inputs) {
  AskOptions options;
  AnswerForm form;
  TalkSettings talk = TalkSettingsFrom(inputs.environment);
  std::string tools_file;
  config::Schema schema("quire chat", "A conversation in the terminal. Ctrl-C stops an answer.");
  schema.Group("Conversation");
  config::Flag flag;
  flag.name = "system";
  flag.help = "A system message that opens the conversation.";
  flag.target = &talk.system;
  schema.Add(flag);
  schema.Add({.name = "tools",
              .help = "Tools that the model may call, as a JSON list in OpenAI's shape. A call is "
                      "shown, and the next line is its result.",
              .target = &tools_file,
              .value_name = "FILE"});
  AddAskFlags(options, schema);
  AddFormFlags(form, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "chat")) return *code;
  TakeKey(inputs.environment, options);
  if (const absl::Status set = SetForm(form, talk.every); !set.ok()) return Failed("chat", set);
  if (options.model.empty()) {
    auto model = FirstModel(options, *inputs.interrupted);
    if (!model.ok()) return Failed("chat", model.status());
    options.model = *model;
  }
  if (!tools_file.empty()) {
    absl::StatusOr<json::Array> tools = ReadTools(tools_file);
    if (!tools.ok()) return Failed("chat", tools.status());
    if (!tools->empty()) talk.every["tools"] = *std::move(tools);
  }
  return Converse(options, talk, *inputs.interrupted);
}

}  // namespace quire::cli
