#include "router/messages/answer.h"

#include <utility>

#include "common/json/json.h"
#include "router/chat/conversation.h"
#include "router/messages/errors.h"

namespace quire::messages {
namespace {

constexpr size_t kBytesPerBlock = 256;  // beside its texts

void AppendMember(std::string_view name, std::string_view text, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  json::AppendQuoted(text, out);
}

void AppendEvent(std::string_view type, std::string& out) {
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += '"';
}

void AppendDelta(size_t index, std::string_view type, std::string& out) {
  AppendEvent("content_block_delta", out);
  out += ",\"index\":" + std::to_string(index) + ",\"delta\":{\"type\":\"";
  out += type;
  out += '"';
}

// The prompt is the sum of the three; what was not cached is counted as input alone.
std::string UsageJson(const Usage& usage) {
  const uint32_t fresh = usage.prompt_tokens - std::min(usage.prompt_tokens, usage.cached_tokens);
  return "{\"input_tokens\":" + std::to_string(fresh) +
         ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" +
         std::to_string(usage.cached_tokens) +
         ",\"output_tokens\":" + std::to_string(usage.completion_tokens) + '}';
}

// A call's input is an object in this API; what a model wrote in place of one is kept in it.
std::string InputOf(std::string_view arguments) {
  const auto read = json::Parse(arguments);
  if (read.ok() && read->is_object()) return std::string(arguments);
  if (arguments.empty()) return "{}";
  std::string out = "{\"arguments\":";
  json::AppendQuoted(arguments, out);
  return out + '}';
}

}  // namespace

void Answer::Name(std::string_view request_id, int64_t) { id_ = "msg_" + std::string(request_id); }

void Answer::Begin(const Started& started, std::string* out) {
  model_ = started.model;
  usage_.prompt_tokens = static_cast<uint32_t>(started.prompt_ids.size());
  if (out == nullptr) return;
  AppendEvent("message_start", *out);
  *out += ",\"message\":{\"id\":";
  json::AppendQuoted(id_, *out);
  *out += ",\"type\":\"message\",\"role\":\"assistant\"";
  AppendMember("model", model_, *out);
  *out +=
      ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":" + UsageJson(usage_) +
      "}}\n\n";
  AppendEvent("ping", *out);
  *out += "}\n\n";
}

void Answer::Add(const Delta& delta, std::string* out) {
  if (!delta.reasoning.empty()) AddText(Kind::kThinking, delta.reasoning, out);
  if (!delta.text.empty()) AddText(Kind::kText, delta.text, out);
  for (const ToolCallDelta& call : delta.tool_calls) AddCall(call, out);
}

void Answer::Open(Block block, std::string* out) {
  Close(out);
  open_ = true;
  held_ += kBytesPerBlock + 2 * (block.id.size() + block.name.size());
  blocks_.push_back(std::move(block));
  if (out == nullptr) return;
  AppendEvent("content_block_start", *out);
  *out += ",\"index\":" + std::to_string(index_) + ",\"content_block\":";
  AppendBlock(blocks_.back(), *out);
  *out += "}\n\n";
}

void Answer::AddText(Kind kind, std::string_view text, std::string* out) {
  if (!open_ || blocks_.back().kind != kind) Open({kind, "", "", ""}, out);
  const bool hidden = kind == Kind::kThinking && asked_.omit_thoughts;
  if (out == nullptr || hidden) {
    blocks_.back().text += text;
    held_ += (hidden ? 4 : 2) * text.size();  // a packed thought is a second text
  }
  if (out == nullptr || hidden) return;
  const bool thought = kind == Kind::kThinking;
  AppendDelta(index_, thought ? "thinking_delta" : "text_delta", *out);
  AppendMember(thought ? "thinking" : "text", text, *out);
  *out += "}}\n\n";
}

void Answer::AddCall(const ToolCallDelta& call, std::string* out) {
  const bool goes_on = open_ && blocks_.back().kind == Kind::kToolUse && call_ == call.index;
  if (!goes_on) Open({Kind::kToolUse, "", call.id, call.name}, out);
  call_ = call.index;
  called_ = true;
  if (call.arguments.empty()) return;
  if (out == nullptr) {
    blocks_.back().text += call.arguments;
    held_ += 2 * call.arguments.size();
    return;
  }
  AppendDelta(index_, "input_json_delta", *out);
  AppendMember("partial_json", call.arguments, *out);
  *out += "}}\n\n";
}

void Answer::Close(std::string* out) {
  if (!std::exchange(open_, false)) return;
  if (out != nullptr) {
    if (blocks_.back().kind == Kind::kThinking) {
      AppendDelta(index_, "signature_delta", *out);
      AppendMember("signature", SignatureOf(blocks_.back()), *out);
      *out += "}}\n\n";
    }
    AppendEvent("content_block_stop", *out);
    *out += ",\"index\":" + std::to_string(index_) + "}\n\n";
    blocks_.clear();
    held_ = 0;
  }
  ++index_;
}

std::string_view Answer::StopReason(const Usage& usage) const {
  if (end_.finish_reason == "length") {
    // The context was full before the client's own limit.
    return usage.completion_tokens < asked_.max_tokens ? "model_context_window_exceeded"
                                                       : "max_tokens";
  }
  if (end_.stop_string) return "stop_sequence";
  return called_ ? "tool_use" : "end_turn";
}

void Answer::Finish(const Usage& usage, std::string* out) {
  Close(out);
  usage_ = usage;
  stop_reason_ = StopReason(usage);
  if (out == nullptr) return;
  AppendEvent("message_delta", *out);
  *out += ",\"delta\":{\"stop_reason\":\"" + stop_reason_ + "\",\"stop_sequence\":";
  if (end_.stop_string) {
    json::AppendQuoted(*end_.stop_string, *out);
  } else {
    *out += "null";
  }
  *out += "},\"usage\":" + UsageJson(usage_) + "}\n\n";
  AppendEvent("message_stop", *out);
  *out += "}\n\n";
}

void Answer::Fail(const ApiError& error, std::string& out) {
  out += "event: error\ndata: ";
  out += ErrorJson(StatusOf(error.code), error.message, {});
  out += "\n\n";
}

std::string Answer::SignatureOf(const Block& block) const {
  return asked_.omit_thoughts ? PackThought(block.text) : std::string(kSignature);
}

// Of a stream: as it starts, without its contents.
void Answer::AppendBlock(const Block& block, std::string& out) const {
  const bool starts = open_;
  switch (block.kind) {
    case Kind::kText:
      out += "{\"type\":\"text\"";
      AppendMember("text", block.text, out);
      break;
    case Kind::kThinking:
      out += "{\"type\":\"thinking\"";
      AppendMember("thinking", asked_.omit_thoughts ? "" : std::string_view(block.text), out);
      AppendMember("signature", starts ? "" : SignatureOf(block), out);
      break;
    case Kind::kToolUse:
      out += "{\"type\":\"tool_use\"";
      AppendMember("id", block.id, out);
      AppendMember("name", block.name, out);
      out += ",\"input\":" + (starts ? "{}" : InputOf(block.text));
      break;
  }
  out += '}';
}

std::string Answer::Whole() const {
  std::string out = "{\"id\":";
  json::AppendQuoted(id_, out);
  out += ",\"type\":\"message\",\"role\":\"assistant\"";
  AppendMember("model", model_, out);
  out += ",\"content\":[";
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i > 0) out += ',';
    AppendBlock(blocks_[i], out);
  }
  out += "],\"stop_reason\":\"" + stop_reason_ + "\",\"stop_sequence\":";
  if (end_.stop_string) {
    json::AppendQuoted(*end_.stop_string, out);
  } else {
    out += "null";
  }
  return out + ",\"usage\":" + UsageJson(usage_) + '}';
}

}  // namespace quire::messages
