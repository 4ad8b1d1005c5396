// `quire chat` and `quire complete`: a conversation in the terminal, and one completion.
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <iterator>

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

// Reads one line; false at the end of input or when interrupted at an empty prompt. `call`: the
// function whose result it is; empty: the user speaks.
bool ReadLine(bool terminal, std::atomic<bool>& interrupted, const std::string& call,
              std::string& line) {
  while (true) {
    if (terminal) {
      if (!call.empty()) Show(stdout, "result of " + call);
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

// What has been said, and whose results come next.
class Conversation {
 public:
  explicit Conversation(std::string system) : system_(std::move(system)) { Clear(); }

  void Clear() {
    calls_.clear();
    messages_.clear();
    if (!system_.empty()) messages_.push_back(Message("system", system_));
  }
  // The function whose result the next line is; empty: the user speaks.
  std::string Expects() const { return calls_.empty() ? "" : calls_.front().name; }
  // A line of the user's, or a result. False: nothing is to be asked yet.
  bool Hear(const std::string& line) {
    if (calls_.empty()) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) return false;
      messages_.push_back(Message("user", line));
      return true;
    }
    json::Object result = Message("tool", line);
    result["tool_call_id"] = calls_.front().id;
    messages_.push_back(std::move(result));
    calls_.pop_front();
    return calls_.empty();
  }
  void Answered(const AnswerText& answer) {
    messages_.push_back(answer.Message());
    calls_.assign(answer.calls().begin(), answer.calls().end());
  }
  // The last line was not answered.
  void TakeBack() { messages_.pop_back(); }
  const json::Array& messages() const { return messages_; }

 private:
  const std::string system_;
  json::Array messages_;
  std::deque<AnswerText::Call> calls_;
};

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
  std::string system, tools_file;
  json::Array tools;
  config::Schema schema("quire chat", "A conversation in the terminal. Ctrl-C stops an answer.");
  schema.Group("Conversation");
  config::Flag flag;
  flag.name = "system";
  flag.help = "A system message that opens the conversation.";
  flag.target = &system;
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
  json::Object every;  // what each of its requests says
  if (const absl::Status set = SetForm(form, every); !set.ok()) return Failed("chat", set);
  if (options.model.empty()) {
    auto model = FirstModel(options, *inputs.interrupted);
    if (!model.ok()) return Failed("chat", model.status());
    options.model = *model;
  }
  if (!tools_file.empty()) {
    absl::StatusOr<json::Array> read = ReadTools(tools_file);
    if (!read.ok()) return Failed("chat", read.status());
    tools = *std::move(read);
  }
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) {
    Show(stdout, options.model + " at " + options.url + ". /clear forgets, /exit leaves.\n");
  }
  Conversation said(system);
  std::string line;
  while (ReadLine(terminal, *inputs.interrupted, said.Expects(), line)) {
    if (line == "/exit") break;
    if (line == "/clear") {
      said.Clear();
      continue;
    }
    if (!said.Hear(line)) continue;
    json::Object body = every;
    body["model"] = options.model;
    body["messages"] = said.messages();
    body["stream"] = true;
    SetSampling(options, body);
    if (!tools.empty()) body["tools"] = tools;
    *inputs.interrupted = false;
    AnswerText answer(isatty(STDOUT_FILENO) != 0);
    const absl::Status asked =
        Ask(options, "/v1/chat/completions", body, *inputs.interrupted, answer);
    std::fputs("\n", stdout);
    if (!asked.ok() && !absl::IsCancelled(asked)) {
      if (!terminal) return Failed("chat", asked);
      Failed("chat", asked);
      said.TakeBack();
      continue;
    }
    said.Answered(answer);
  }
  return 0;
}

}  // namespace quire::cli
