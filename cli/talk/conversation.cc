#include "cli/talk/conversation.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/ascii.h"
#include "common/config/values.h"

namespace quire::cli {
namespace {

constexpr char kHelp[] =
    "  /help               this list\n"
    "  /system TEXT        sets the system message; without TEXT shows it, /system - removes it\n"
    "  /set NAME VALUE     temperature, top_p, max_tokens, seed or model; without them shows all\n"
    "  /save FILE          writes the conversation to a file\n"
    "  /load FILE          goes on with a conversation that was saved\n"
    "  /clear              forgets all messages\n"
    "  /exit, Ctrl-D       leaves\n"
    "A line that ends in \\ continues on the next; \"\"\" begins and ends a text of several "
    "lines.\n"
    "Ctrl-C stops an answer, or gives a line up; Ctrl-R searches earlier lines.\n";

json::Object MessageObject(std::string_view role, std::string_view text) {
  json::Object message;
  message["role"] = json::BoostView(role);
  message["content"] = json::BoostView(text);
  return message;
}

absl::StatusOr<std::string> TextOfFile(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!std::filesystem::is_regular_file(path, error) || !file) {
    return InvalidArgument("/load: " + path + " cannot be read");
  }
  if (std::filesystem::file_size(path, error) > kMaxConversationBytes || error) {
    return InvalidArgument("/load: " + path + " is longer than 16 MiB");
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// "NAME the rest" → both, trimmed.
std::pair<std::string_view, std::string_view> FirstWord(std::string_view text) {
  text = Trim(text);
  const size_t space = text.find_first_of(" \t\n");
  if (space == std::string_view::npos) return {text, ""};
  return {text.substr(0, space), Trim(text.substr(space + 1))};
}

std::string NumberOr(double value, bool is_set) {
  return is_set ? config::FormatDouble(value) : "the server's default";
}

}  // namespace

void Conversation::Add(std::string_view role, std::string_view text) {
  messages_.push_back(MessageObject(role, text));
}

void Conversation::Add(const AnswerText& answer) {
  messages_.push_back(answer.Message());
  calls_.assign(answer.calls().begin(), answer.calls().end());
}

bool Conversation::Hear(std::string_view line) {
  if (calls_.empty()) {
    Add("user", line);
    return true;
  }
  json::Object result = MessageObject("tool", line);
  result["tool_call_id"] = calls_.front().id;
  messages_.push_back(std::move(result));
  calls_.pop_front();
  return calls_.empty();
}

json::Array Conversation::Messages() const {
  json::Array all;
  if (!system_.empty()) all.push_back(MessageObject("system", system_));
  for (const json::Object& message : messages_) all.push_back(message);
  return all;
}

absl::StatusOr<std::string> Conversation::Obey(std::string_view line) {
  const auto [command, rest] = FirstWord(line);
  if (command == "/help" || command == "/?") return std::string(kHelp);
  if (command == "/clear") {
    messages_.clear();
    calls_.clear();
    return std::string();
  }
  if (command == "/system") {
    if (rest.empty()) return system_.empty() ? "no system message\n" : system_ + "\n";
    system_ = rest == "-" ? "" : rest;
    return std::string();
  }
  if (command == "/set") return Set(rest);
  if (command == "/save" || command == "/load") {
    if (rest.empty()) return InvalidArgument(std::string(command) + ": name a file");
    const std::string path(rest);
    QUIRE_RETURN_IF_ERROR(command == "/save" ? Save(path) : Load(path));
    return std::to_string(messages_.size()) +
           (command == "/save" ? " messages saved\n" : " messages loaded\n");
  }
  return InvalidArgument("there is no command " + std::string(command.substr(0, 40)) +
                         "; /help lists them");
}

std::string Conversation::Settings() const {
  return "  temperature  " + NumberOr(options_.temperature, options_.temperature >= 0) +
         "\n  top_p        " + NumberOr(options_.top_p, options_.top_p >= 0) + "\n  max_tokens   " +
         NumberOr(static_cast<double>(options_.max_tokens), options_.max_tokens > 0) +
         "\n  seed         " + NumberOr(static_cast<double>(options_.seed), options_.seed >= 0) +
         "\n  model        " + options_.model + "\n";
}

absl::StatusOr<std::string> Conversation::Set(std::string_view words) {
  const auto [name, value] = FirstWord(words);
  if (name.empty()) return Settings();
  if (value.empty()) return InvalidArgument("/set " + std::string(name) + ": give a value");
  if (name == "model") {
    options_.model = value;
    return std::string();
  }
  const auto annotate = [&, name = name](const absl::Status& status) {
    return Annotate(status, "/set " + std::string(name));
  };
  if (name == "temperature" || name == "top_p") {
    const absl::StatusOr<double> number = config::ParseDouble(value);
    if (!number.ok()) return annotate(number.status());
    if (*number < 0) return annotate(InvalidArgument("must be 0 or more"));
    (name == "temperature" ? options_.temperature : options_.top_p) = *number;
    return std::string();
  }
  if (name == "max_tokens" || name == "seed") {
    const absl::StatusOr<int64_t> number = config::ParseInt(value);
    if (!number.ok()) return annotate(number.status());
    if (*number < 0) return annotate(InvalidArgument("must be 0 or more"));
    (name == "seed" ? options_.seed : options_.max_tokens) = *number;
    return std::string();
  }
  return InvalidArgument("/set: there is no setting " + std::string(name.substr(0, 40)) +
                         "; there are temperature, top_p, max_tokens, seed and model");
}

absl::Status Conversation::Save(const std::string& path) const {
  json::Object object;
  object["model"] = options_.model;
  object["messages"] = Messages();
  std::ofstream file(path, std::ios::trunc);
  file << json::Serialize(object) << "\n";
  file.close();
  return file.good() ? absl::OkStatus() : InvalidArgument("/save: " + path + " cannot be written");
}

absl::Status Conversation::Load(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, TextOfFile(path));
  const absl::StatusOr<json::Value> value = json::Parse(text, {.max_values = 8 * kMaxMessages});
  if (!value.ok()) return Annotate(value.status(), "/load: " + path);
  const json::Object* object = value->if_object();
  const json::Value* list = object == nullptr ? nullptr : json::Find(*object, "messages");
  if (list == nullptr || !list->is_array() || list->get_array().size() > kMaxMessages) {
    return InvalidArgument("/load: " + path + " has no list of at most 10,000 messages");
  }
  std::vector<json::Object> messages;
  std::string system;
  for (const json::Value& entry : list->get_array()) {
    const json::Object* message = entry.if_object();
    const json::Value* role = message == nullptr ? nullptr : json::Find(*message, "role");
    const json::Value* content = message == nullptr ? nullptr : json::Find(*message, "content");
    if (role == nullptr || content == nullptr || !role->is_string() || !content->is_string()) {
      return InvalidArgument("/load: " + path + ": messages have a role and a text as content");
    }
    const std::string_view name = json::View(role->get_string());
    if (name == "system") {
      system = json::View(content->get_string());
    } else {
      messages.push_back(*message);
    }
  }
  messages_ = std::move(messages);
  calls_.clear();
  system_ = std::move(system);
  return absl::OkStatus();
}

}  // namespace quire::cli
