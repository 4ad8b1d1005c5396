#include "router/responses/answer.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/json/json.h"
#include "router/chat/conversation.h"
#include "router/core/result.h"

namespace quire::responses {
namespace {

// Of an item beside its texts, with what vectors and strings have spare.
constexpr size_t kBytesPerItem = 512;
// What the request said stands here, and in the first two events of a stream, which are written at
// once, or in the answer and the response that is kept.
constexpr size_t kCopiesOfEcho = 3;

void AppendNumber(uint64_t value, std::string& out) {
  char buffer[24];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, result.ptr);
}

void AppendMember(std::string_view name, std::string_view text, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  json::AppendQuoted(text, out);
}

void AppendLogprob(const TokenLogprob& token, std::string& out) {
  out += "{\"token\":";
  json::AppendQuoted(token.token, out);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    if (i > 0) out += ',';
    AppendNumber(static_cast<unsigned char>(token.bytes[i]), out);
  }
  out += "],\"logprob\":";
  // JSON has no infinities; clients know −9999 for "impossible".
  const float value = std::isfinite(token.logprob) ? token.logprob : -9999.0f;
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, result.ptr);
}

std::string LogprobsOf(const std::vector<TokenLogprob>& logprobs) {
  std::string out;
  for (const TokenLogprob& token : logprobs) {
    if (!out.empty()) out += ',';
    AppendLogprob(token, out);
    out += ",\"top_logprobs\":[";
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (i > 0) out += ',';
      AppendLogprob(token.top[i], out);
      out += '}';
    }
    out += "]}";
  }
  return out;
}

// A part of a message or of a thought.
void AppendPart(bool message, std::string_view text, std::string_view logprobs, std::string& out) {
  out += message ? "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":["
                 : "{\"type\":\"reasoning_text\"";
  if (message) {
    out += logprobs;
    out += ']';
  }
  AppendMember("text", text, out);
  out += '}';
}

std::string UsageJson(const Usage& usage) {
  std::string out = "{\"input_tokens\":";
  AppendNumber(usage.prompt_tokens, out);
  out += ",\"input_tokens_details\":{\"cached_tokens\":";
  AppendNumber(usage.cached_tokens, out);
  out += ",\"cache_write_tokens\":0},\"output_tokens\":";
  AppendNumber(usage.completion_tokens, out);
  out += ",\"output_tokens_details\":{\"reasoning_tokens\":";
  AppendNumber(usage.reasoning_tokens, out);
  out += "},\"total_tokens\":";
  AppendNumber(uint64_t{usage.prompt_tokens} + usage.completion_tokens, out);
  return out + '}';
}

}  // namespace

std::string_view FailureCode(const ApiError& error) {
  if (!error.reason.empty()) return error.reason;
  switch (error.code) {
    case ApiCode::kRateLimited:
      return "rate_limit_exceeded";
    case ApiCode::kInvalidArgument:
    case ApiCode::kTooLarge:
    case ApiCode::kNotFound:
    case ApiCode::kUnimplemented:
      return "invalid_prompt";
    default:
      return "server_error";
  }
}

Answer::Answer(Asked asked) : asked_(std::move(asked)) {
  held_ = kCopiesOfEcho * asked_.echo.size() + asked_.items.size();
  for (const auto& [shown, tool] : asked_.names) {
    held_ += kBytesPerItem + shown.size() + tool.name.size() + tool.space.size();
  }
}

void Answer::Name(std::string_view request_id, int64_t unix_seconds) {
  request_id_ = request_id;
  created_ = unix_seconds;
}

void Answer::Begin(const Started& started, std::string* out) {
  created_ = started.created;
  model_ = started.model;
  if (out == nullptr) return;
  AppendLifecycle("response.created", *out);
  AppendLifecycle("response.in_progress", *out);
}

void Answer::Add(const Delta& delta, std::string* out) {
  static const std::vector<TokenLogprob> kNone;
  if (!delta.reasoning.empty()) AddText(Kind::kReasoning, delta.reasoning, kNone, out);
  if (!delta.text.empty()) AddText(Kind::kMessage, delta.text, delta.logprobs, out);
  for (const ToolCallDelta& call : delta.tool_calls) AddCall(call, out);
}

Answer::Item& Answer::Open(Kind kind, std::string* out) {
  Close(Status::kCompleted, out);
  constexpr std::string_view kPrefixes[] = {"msg_", "rs_", "fc_", "ctc_"};
  Item& item = items_.emplace_back();
  item.kind = kind;
  item.id = std::string(kPrefixes[static_cast<size_t>(kind)]) + request_id_ + "_" +
            std::to_string(items_.size() - 1);
  held_ += kBytesPerItem;
  open_ = true;
  return item;
}

void Answer::AddText(Kind kind, std::string_view text, const std::vector<TokenLogprob>& logprobs,
                     std::string* out) {
  const bool message = kind == Kind::kMessage;
  if (!open_ || items_.back().kind != kind) {
    Open(kind, out);
    if (out != nullptr) {
      AppendEvent("response.output_item.added", *out);
      AppendPlace(false, *out);
      *out += ",\"item\":";
      AppendItem(items_.back(), *out);
      *out += "}\n\n";
      AppendEvent("response.content_part.added", *out);
      AppendPlace(true, *out);
      *out += ",\"part\":";
      AppendPart(message, "", "", *out);
      *out += "}\n\n";
    }
  }
  Item& item = items_.back();
  item.text += text;
  const std::string probabilities = LogprobsOf(logprobs);
  if (!probabilities.empty() && !item.logprobs.empty()) item.logprobs += ',';
  item.logprobs += probabilities;
  // Strings double as they grow; a packed thought is a second text.
  held_ += (asked_.pack_thoughts ? 4 : 2) * text.size() + 2 * probabilities.size();
  if (out == nullptr) return;
  AppendEvent(message ? "response.output_text.delta" : "response.reasoning_text.delta", *out);
  AppendPlace(true, *out);
  AppendMember("delta", text, *out);
  if (message) *out += ",\"logprobs\":[" + probabilities + "]";
  *out += "}\n\n";
}

void Answer::OpenCall(const ToolCallDelta& call, std::string* out) {
  ToolName tool{call.name, "", false};
  if (const auto known = asked_.names.find(call.name); known != asked_.names.end()) {
    tool = known->second;
  }
  Item& item = Open(tool.custom ? Kind::kCustomCall : Kind::kCall, out);
  item.call_id = call.id;
  item.tool = std::move(tool);
  call_ = call.index;
  held_ += 2 * (call.id.size() + call.name.size());
  if (out == nullptr) return;
  AppendEvent("response.output_item.added", *out);
  AppendPlace(false, *out);
  *out += ",\"item\":";
  AppendItem(item, *out);
  *out += "}\n\n";
}

void Answer::AddCall(const ToolCallDelta& call, std::string* out) {
  const bool goes_on = open_ && items_.back().kind >= Kind::kCall && call_ == call.index;
  if (!goes_on) OpenCall(call, out);
  if (call.arguments.empty()) return;
  Item& item = items_.back();
  item.text += call.arguments;
  held_ += 4 * call.arguments.size();  // a custom tool's text is taken out of it
  // The text of a custom tool is known once its JSON is whole.
  if (out == nullptr || item.kind == Kind::kCustomCall) return;
  AppendEvent("response.function_call_arguments.delta", *out);
  AppendPlace(false, *out);
  AppendMember("delta", call.arguments, *out);
  *out += "}\n\n";
}

void Answer::Close(Status status, std::string* out) {
  if (!std::exchange(open_, false)) return;
  Item& item = items_.back();
  item.status = status;
  const bool call = item.kind >= Kind::kCall;
  if (item.kind == Kind::kCustomCall) item.text = CustomInput(item.text);
  if (out == nullptr) return;
  if (call) {
    AppendDoneOfCall(item, *out);
  } else {
    AppendDoneOfText(item, *out);
  }
  AppendEvent("response.output_item.done", *out);
  AppendPlace(false, *out);
  *out += ",\"item\":";
  AppendItem(item, *out);
  *out += "}\n\n";
}

void Answer::AppendDoneOfText(const Item& item, std::string& out) {
  const bool message = item.kind == Kind::kMessage;
  AppendEvent(message ? "response.output_text.done" : "response.reasoning_text.done", out);
  AppendPlace(true, out);
  AppendMember("text", item.text, out);
  if (message) out += ",\"logprobs\":[" + item.logprobs + "]";
  out += "}\n\n";
  AppendEvent("response.content_part.done", out);
  AppendPlace(true, out);
  out += ",\"part\":";
  AppendPart(message, item.text, item.logprobs, out);
  out += "}\n\n";
}

void Answer::AppendDoneOfCall(const Item& item, std::string& out) {
  const bool custom = item.kind == Kind::kCustomCall;
  if (custom) {
    AppendEvent("response.custom_tool_call_input.delta", out);
    AppendPlace(false, out);
    AppendMember("delta", item.text, out);
    out += "}\n\n";
  }
  AppendEvent(
      custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
      out);
  AppendPlace(false, out);
  if (!custom) AppendMember("name", item.tool.name, out);
  AppendMember(custom ? "input" : "arguments", item.text, out);
  out += "}\n\n";
}

void Answer::Finish(const Usage& usage, std::string* out) {
  const bool cut = finish_reason_ == "length";
  Close(cut ? Status::kIncomplete : Status::kCompleted, out);
  status_ = cut ? "incomplete" : "completed";
  if (cut) incomplete_ = "{\"reason\":\"max_output_tokens\"}";
  usage_ = UsageJson(usage);
  if (out != nullptr) AppendLifecycle("response." + status_, *out);
  if (asked_.keeping.store == nullptr) return;
  std::string output;
  AppendOutput(output);
  asked_.keeping.store->Keep(
      asked_.keeping.owner, "resp_" + request_id_,
      {std::move(asked_.items), std::move(output), Response(), asked_.item_count + items_.size()});
}

void Answer::Fail(const ApiError& error, std::string& out) {
  if (std::exchange(open_, false)) items_.back().status = Status::kIncomplete;
  status_ = "failed";
  error_ = "{\"code\":";
  json::AppendQuoted(FailureCode(error), error_);
  AppendMember("message", error.message, error_);
  error_ += '}';
  AppendLifecycle("response.failed", out);
}

void Answer::AppendEvent(std::string_view type, std::string& out) {
  out += "event: ";
  out += type;
  out += "\ndata: {\"type\":\"";
  out += type;
  out += "\",\"sequence_number\":";
  AppendNumber(sequence_++, out);
}

void Answer::AppendPlace(bool with_content, std::string& out) const {
  out += ",\"item_id\":";
  json::AppendQuoted(items_.back().id, out);
  out += ",\"output_index\":";
  AppendNumber(items_.size() - 1, out);
  if (with_content) out += ",\"content_index\":0";
}

void Answer::AppendLifecycle(std::string_view type, std::string& out) {
  AppendEvent(type, out);
  out += ",\"response\":";
  AppendResponse(out);
  out += "}\n\n";
}

void Answer::AppendItem(const Item& item, std::string& out) const {
  constexpr std::string_view kTypes[] = {"message", "reasoning", "function_call",
                                         "custom_tool_call"};
  constexpr std::string_view kStatuses[] = {"in_progress", "completed", "incomplete"};
  const bool begun = item.status != Status::kInProgress;
  out += "{\"type\":\"";
  out += kTypes[static_cast<size_t>(item.kind)];
  out += '"';
  AppendMember("id", item.id, out);
  AppendMember("status", kStatuses[static_cast<size_t>(item.status)], out);
  if (item.kind == Kind::kMessage || item.kind == Kind::kReasoning) {
    const bool message = item.kind == Kind::kMessage;
    out += message ? ",\"role\":\"assistant\",\"content\":[" : ",\"summary\":[],\"content\":[";
    if (begun) AppendPart(message, item.text, item.logprobs, out);
    out += ']';
    if (!message) {
      out += ",\"encrypted_content\":";
      if (begun && asked_.pack_thoughts) {
        json::AppendQuoted(PackThought(item.text), out);
      } else {
        out += "null";
      }
    }
  } else {
    AppendMember("call_id", item.call_id, out);
    AppendMember("name", item.tool.name, out);
    if (!item.tool.space.empty()) AppendMember("namespace", item.tool.space, out);
    AppendMember(item.kind == Kind::kCall ? "arguments" : "input",
                 begun ? std::string_view(item.text) : std::string_view(), out);
  }
  out += '}';
}

void Answer::AppendOutput(std::string& out) const {
  for (const Item& item : items_) {
    if (&item != &items_.front()) out += ',';
    AppendItem(item, out);
  }
}

std::string Answer::Response() const {
  std::string out;
  AppendResponse(out);
  return out;
}

void Answer::AppendResponse(std::string& out) const {
  out.reserve(out.size() + asked_.echo.size() + kBytesPerItem);
  out += "{\"id\":";
  json::AppendQuoted("resp_" + request_id_, out);
  out += ",\"object\":\"response\",\"created_at\":" + std::to_string(created_);
  AppendMember("status", status_, out);
  out += ",\"background\":false,\"error\":" + error_ + ",\"incomplete_details\":" + incomplete_;
  AppendMember("model", model_, out);
  out += ",\"output\":[";
  AppendOutput(out);
  out += "],\"usage\":" + usage_;
  out += asked_.echo;
  out += '}';
}

}  // namespace quire::responses
