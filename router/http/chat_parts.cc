#include "router/http/chat_parts.h"

#include "common/json/json.h"

namespace quire {
namespace {

// vLLM's two names of it: clients read one or the other.
void AppendReasoning(std::string_view text, std::string& out) {
  out += "\"reasoning\":";
  json::AppendQuoted(text, out);
  out += ",\"reasoning_content\":";
  json::AppendQuoted(text, out);
}

void AppendFunction(std::string_view name, std::string_view arguments, std::string& out) {
  out += "{";
  if (!name.empty()) {
    out += "\"name\":";
    json::AppendQuoted(name, out);
    out += ',';
  }
  out += "\"arguments\":";
  json::AppendQuoted(arguments, out);
  out += '}';
}

}  // namespace

void AddPiece(const ToolCallDelta& piece, std::vector<WholeCall>& calls) {
  if (!piece.id.empty()) calls.push_back({piece.id, piece.name, ""});
  if (!calls.empty()) calls.back().arguments += piece.arguments;
}

void AppendMessage(const ChatMessage& message, const ChatStyle& style, std::string& out) {
  const bool thinks = !message.reasoning.empty();
  out += "{\"role\":\"assistant\",\"content\":";
  if (message.text.empty() && (thinks || !message.calls.empty())) {
    out += "null";
  } else {
    json::AppendQuoted(message.text, out);
  }
  if (thinks && style.reasoning) {
    out += ',';
    AppendReasoning(message.reasoning, out);
  }
  if (style.functions && !message.calls.empty()) {
    out += ",\"function_call\":";
    AppendFunction(message.calls[0].name, message.calls[0].arguments, out);
  } else if (!message.calls.empty()) {
    out += ",\"tool_calls\":[";
    for (const WholeCall& call : message.calls) {
      if (&call != &message.calls.front()) out += ',';
      out += "{\"id\":";
      json::AppendQuoted(call.id, out);
      out += ",\"type\":\"function\",\"function\":";
      AppendFunction(call.name, call.arguments, out);
      out += '}';
    }
    out += ']';
  }
  out += '}';
}

bool SaysWords(const Delta& delta, const ChatStyle& style) {
  return !delta.text.empty() || (style.reasoning && !delta.reasoning.empty());
}

void AppendDelta(const Delta& delta, const ChatStyle& style, std::string& out) {
  const bool thinks = style.reasoning && !delta.reasoning.empty();
  if (thinks) AppendReasoning(delta.reasoning, out);
  if (thinks && delta.text.empty()) return;
  if (thinks) out += ',';
  out += "\"content\":";
  json::AppendQuoted(delta.text, out);
}

void AppendCall(const ToolCallDelta& piece, const ChatStyle& style, std::string& out) {
  if (style.functions) {
    out += "\"function_call\":";
    AppendFunction(piece.name, piece.arguments, out);
    return;
  }
  out += "\"tool_calls\":[{\"index\":" + std::to_string(piece.index);
  if (!piece.id.empty()) {
    out += ",\"id\":";
    json::AppendQuoted(piece.id, out);
    out += ",\"type\":\"function\"";
  }
  out += ",\"function\":";
  AppendFunction(piece.name, piece.arguments, out);
  out += "}]";
}

std::string_view FinishReasonOf(const ChoiceEnd& end, const ChatStyle& style) {
  if (end.finish_reason != "tool_calls") return end.finish_reason;
  if (style.named) return "stop";
  return style.functions ? std::string_view("function_call") : "tool_calls";
}

}  // namespace quire
