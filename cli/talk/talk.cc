// `quire chat` and `quire complete`: a conversation in the terminal, and one completion.
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/talk/answer_form.h"

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

json::Object Message(const char* role, const std::string& content) {
  json::Object message;
  message["role"] = role;
  message["content"] = content;
  return message;
}

// Reads one line; false at the end of input or when interrupted at an empty prompt.
bool ReadLine(bool terminal, std::atomic<bool>& interrupted, std::string& line) {
  while (true) {
    if (terminal) {
      std::fputs("> ", stdout);
      std::fflush(stdout);
    }
    interrupted = false;
    std::cin.clear();
    if (std::getline(std::cin, line)) return true;
    if (!interrupted) return false;
    std::fputs("\n(Ctrl-D or /exit leaves)\n", stdout);
    clearerr(stdin);
  }
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
  std::string partial;
  const auto text = Ask(options, "/v1/completions", body, *inputs.interrupted, partial);
  std::fputs("\n", stdout);
  if (absl::IsCancelled(text.status())) return 130;
  return text.ok() ? 0 : Failed("complete", text.status());
}

int RunChat(const CommandInputs& inputs) {
  AskOptions options;
  AnswerForm form;
  std::string system;
  config::Schema schema("quire chat", "A conversation in the terminal. Ctrl-C stops an answer.");
  schema.Group("Conversation");
  config::Flag flag;
  flag.name = "system";
  flag.help = "A system message that opens the conversation.";
  flag.target = &system;
  schema.Add(flag);
  AddAskFlags(options, schema);
  AddFormFlags(form, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "chat")) return *code;
  TakeKey(inputs.environment, options);
  json::Object every;  // what each of its requests says
  if (const absl::Status set = SetForm(form, every); !set.ok()) return Failed("chat", set);
  if (options.model.empty()) {
    auto model = FirstModel(options, *inputs.interrupted);
    if (!model.ok()) return Failed("chat", model.status());
    options.model = *model;
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    Show(stdout, options.model + " at " + options.url + ". /clear forgets, /exit leaves.\n");
  }
  json::Array messages;
  const auto clear = [&] {
    messages.clear();
    if (!system.empty()) messages.push_back(Message("system", system));
  };
  clear();
  std::string line;
  while (ReadLine(terminal, *inputs.interrupted, line)) {
    if (line == "/exit") break;
    if (line == "/clear") {
      clear();
      continue;
    }
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    messages.push_back(Message("user", line));
    json::Object body = every;
    body["model"] = options.model;
    body["messages"] = messages;
    body["stream"] = true;
    SetSampling(options, body);
    std::string partial;
    *inputs.interrupted = false;
    const auto text = Ask(options, "/v1/chat/completions", body, *inputs.interrupted, partial);
    std::fputs("\n", stdout);
    if (!text.ok() && !absl::IsCancelled(text.status())) {
      if (!terminal) return Failed("chat", text.status());
      Failed("chat", text.status());
      messages.pop_back();
      continue;
    }
    messages.push_back(Message("assistant", partial));
  }
  return 0;
}

}  // namespace quire::cli
