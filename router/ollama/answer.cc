#include "router/ollama/answer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "common/json/json.h"
#include "router/ollama/words.h"

namespace quire::ollama {
namespace {

constexpr int64_t kNanosPerMicro = 1000;
constexpr std::string_view kMore = ",\"done\":false}\n";  // ends a piece that is not the last
constexpr float kImpossible = -9999.0f;                   // JSON has no infinities

void AppendMember(std::string_view name, std::string_view text, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  json::AppendQuoted(text, out);
}

void AppendCount(std::string_view name, int64_t count, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":" + std::to_string(count);
}

// Arguments are an object in this API; what a model wrote in place of one is kept in it.
std::string ArgumentsOf(std::string_view text) {
  const auto read = json::Parse(text);
  if (read.ok() && read->is_object()) {
    // An answer is one line, and models write objects over several: JSON has breaks of lines
    // between its parts alone.
    std::string line(text);
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return line;
  }
  if (text.empty()) return "{}";
  std::string out = "{\"arguments\":";
  json::AppendQuoted(text, out);
  return out + '}';
}

void AppendToken(const TokenLogprob& token, std::string& out) {
  out += "{\"token\":";
  json::AppendQuoted(token.token, out);
  char buffer[32];
  const float value = std::isfinite(token.logprob) ? token.logprob : kImpossible;
  out += ",\"logprob\":";
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  out += ",\"bytes\":[";
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(static_cast<unsigned char>(token.bytes[i]));
  }
  out += ']';
}

}  // namespace

void Answer::Name(std::string_view, int64_t unix_seconds) {
  unix_seconds_ = unix_seconds;
  asked_at_ = loaded_at_ = now_;
}

std::string Answer::KeepAlive() const {
  std::string out;
  AppendPiece({}, out);
  return out;
}

void Answer::Begin(const Started&, std::string*) {
  begun_ = true;
  begun_at_ = now_;
}

void Answer::Add(const Delta& delta, std::string* out) {
  const bool speaks = !delta.text.empty() || !delta.reasoning.empty();
  std::string logprobs;
  if (logprobs_) AppendLogprobs(delta.logprobs, logprobs);
  if (out == nullptr) {
    text_ += delta.text;
    thought_ += delta.reasoning;
    if (!logprobs.empty() && !logprobs_json_.empty()) logprobs_json_ += ',';
    logprobs_json_ += logprobs;
    held_ += 2 * (delta.text.size() + delta.reasoning.size() + logprobs.size() + 1);
  } else if (speaks || !logprobs.empty()) {
    AppendPiece({delta.text, delta.reasoning, "", logprobs}, *out);
  }
  for (const ToolCallDelta& call : delta.tool_calls) AddCall(call, out);
}

void Answer::AddCall(const ToolCallDelta& call, std::string* out) {
  if (!call_ || call.index != call_index_) {
    CloseCall(out);
    call_.emplace(Call{call.id, call.name, ""});
    call_index_ = call.index;
    held_ += 2 * (call.id.size() + call.name.size());
  }
  call_->arguments += call.arguments;
  held_ += 2 * call.arguments.size();
}

void Answer::CloseCall(std::string* out) {
  if (!call_) return;
  const Call call = *std::exchange(call_, std::nullopt);
  std::string text = "{\"id\":";
  json::AppendQuoted(call.id, text);
  text += ",\"function\":{\"index\":" + std::to_string(calls_++) + ",\"name\":";
  json::AppendQuoted(call.name, text);
  text += ",\"arguments\":" + ArgumentsOf(call.arguments) + "}}";
  if (out != nullptr) {
    held_ -= 2 * (call.id.size() + call.name.size() + call.arguments.size());
    return AppendPiece({"", "", text, ""}, *out);
  }
  if (!calls_json_.empty()) calls_json_ += ',';
  calls_json_ += text;
  held_ += 2 * text.size();
}

void Answer::AppendLogprobs(const std::vector<TokenLogprob>& logprobs, std::string& out) const {
  for (const TokenLogprob& token : logprobs) {
    if (!out.empty()) out += ',';
    AppendToken(token, out);
    const size_t most = std::min(token.top.size(), static_cast<size_t>(*logprobs_));
    if (most > 0) out += ",\"top_logprobs\":[";
    for (size_t i = 0; i < most; ++i) {
      if (i > 0) out += ',';
      AppendToken(token.top[i], out);
      out += '}';
    }
    out += most > 0 ? "]}" : "}";
  }
}

void Answer::AppendHead(std::string& out) const {
  out += "{\"model\":";
  json::AppendQuoted(model_, out);
  out += ",\"created_at\":\"" + TimeText(unix_seconds_, now_ - asked_at_) + '"';
}

void Answer::AppendPiece(const Piece& piece, std::string& out) const {
  AppendHead(out);
  if (kind_ == Kind::kChat) {
    out += ",\"message\":{\"role\":\"assistant\"";
    AppendMember("content", piece.text, out);
  } else {
    AppendMember("response", piece.text, out);
  }
  if (!piece.thought.empty()) AppendMember("thinking", piece.thought, out);
  if (!piece.calls.empty()) {
    out += ",\"tool_calls\":[";
    out += piece.calls;
    out += ']';
  }
  if (kind_ == Kind::kChat) out += '}';
  if (!piece.logprobs.empty()) {
    out += ",\"logprobs\":[";
    out += piece.logprobs;
    out += ']';
  }
  out += kMore;
}

void Answer::AppendEnd(std::string& out) const {
  out += ",\"done\":true,\"done_reason\":";
  json::AppendQuoted(end_.finish_reason == "tool_calls" ? "stop" : end_.finish_reason, out);
  const int64_t begun_at = begun_ ? begun_at_ : ended_at_;
  const int64_t loaded_at = begun_ ? loaded_at_ : ended_at_;
  AppendCount("total_duration", kNanosPerMicro * (ended_at_ - asked_at_), out);
  AppendCount("load_duration", kNanosPerMicro * (loaded_at - asked_at_), out);
  AppendCount("prompt_eval_count", usage_.prompt_tokens, out);
  AppendCount("prompt_eval_duration", kNanosPerMicro * (begun_at - loaded_at), out);
  AppendCount("eval_count", usage_.completion_tokens, out);
  AppendCount("eval_duration", kNanosPerMicro * (ended_at_ - begun_at), out);
  out += '}';
}

void Answer::Finish(const Usage& usage, std::string* out) {
  CloseCall(out);
  usage_ = usage;
  ended_at_ = now_;
  if (out == nullptr) return;
  *out += Whole();
  *out += '\n';
}

void Answer::Fail(const ApiError& error, std::string& out) {
  out += ErrorJson(error.message);
  out += '\n';
}

// Of a stream: its last object, since nothing else is kept.
std::string Answer::Whole() const {
  std::string out;
  AppendPiece({text_, thought_, calls_json_, logprobs_json_}, out);
  out.resize(out.size() - kMore.size());
  AppendEnd(out);
  return out;
}

}  // namespace quire::ollama
