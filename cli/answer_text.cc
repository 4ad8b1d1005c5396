#include "cli/answer_text.h"

#include <cstdio>

#include "cli/format.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxShownCalls = 1024;  // of one answer; a server that sends more is not believed

std::string_view TextAt(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value != nullptr && value->is_string() ? json::View(value->get_string()) : "";
}

}  // namespace

void AnswerText::Turn(Part part) {
  if (part_ == part && part != Part::kCall) return;
  if (part_ == Part::kText && painter_ != nullptr) {
    std::fputs(painter_->Finish().c_str(), stdout);
  }
  if (part_ == Part::kThought) std::fputs("\033[0m", stdout);
  if (part_ != Part::kNone) std::fputs("\n", stdout);
  if (part == Part::kThought) std::fputs("\033[2m", stdout);
  part_ = part;
}

void AnswerText::AddCall(const json::Object& piece) {
  const json::Value* function = json::Find(piece, "function");
  if (function == nullptr || !function->is_object()) return;
  const std::string_view name = TextAt(function->get_object(), "name");
  const std::string_view arguments = TextAt(function->get_object(), "arguments");
  if (!name.empty()) {
    if (calls_.size() >= kMaxShownCalls) return;
    calls_.push_back({std::string(TextAt(piece, "id")), std::string(name), ""});
    Turn(Part::kCall);
    Show(stdout, "calls " + std::string(name) + " ");
  }
  if (calls_.empty()) return;
  calls_.back().arguments += arguments;
  Show(stdout, arguments);
}

void AnswerText::Add(const json::Object& chunk) {
  const json::Value* choices = json::Find(chunk, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return;
  const json::Value& choice = choices->get_array().front();
  if (!choice.is_object()) return;
  const json::Value* delta = json::Find(choice.get_object(), "delta");
  const bool chat = delta != nullptr && delta->is_object();
  const std::string_view thought = chat ? TextAt(delta->get_object(), "reasoning") : "";
  if (!thought.empty()) {
    thought_ += thought;
    if (dim_) {
      Turn(Part::kThought);
      Show(stdout, thought);
    }
  }
  const std::string_view text =
      chat ? TextAt(delta->get_object(), "content") : TextAt(choice.get_object(), "text");
  if (!text.empty()) {
    Turn(Part::kText);
    text_ += text;
    if (painter_ != nullptr) {
      std::fputs(painter_->Add(WithoutControls(text)).c_str(), stdout);
    } else {
      Show(stdout, text);
    }
  }
  const json::Value* calls = chat ? json::Find(delta->get_object(), "tool_calls") : nullptr;
  if (calls != nullptr && calls->is_array()) {
    for (const json::Value& piece : calls->get_array()) {
      if (piece.is_object()) AddCall(piece.get_object());
    }
  }
  std::fflush(stdout);
}

void AnswerText::Finish() {
  if (part_ == Part::kThought) std::fputs("\033[0m", stdout);
  if (part_ == Part::kText && painter_ != nullptr) {
    std::fputs(painter_->Finish().c_str(), stdout);
  }
  part_ = Part::kNone;
}

json::Object AnswerText::Message() const {
  json::Object message;
  message["role"] = "assistant";
  message["content"] = text_;
  if (!thought_.empty()) message["reasoning"] = thought_;
  json::Array calls;
  for (const Call& call : calls_) {
    json::Object function;
    function["name"] = call.name;
    function["arguments"] = call.arguments;
    json::Object made;
    made["id"] = call.id;
    made["type"] = "function";
    made["function"] = std::move(function);
    calls.push_back(std::move(made));
  }
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace quire::cli
