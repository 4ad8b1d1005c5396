#include "library/events.h"

#include <string_view>

#include "common/json/json.h"
#include "router/http/errors.h"

namespace quire {
namespace {

void AppendText(std::string_view name, std::string_view text, std::string& out) {
  out += ",\"" + std::string(name) + "\":";
  json::AppendQuoted(text, out);
}

// "id", "token" and "logprob".
void AppendToken(const TokenLogprob& token, std::string& out) {
  out += "\"id\":" + std::to_string(token.id);
  AppendText("token", token.token, out);
  out += ",\"logprob\":" + json::Serialize(json::Value(static_cast<double>(token.logprob)));
}

void AppendLogprobs(std::string_view name, std::span<const TokenLogprob> logprobs,
                    std::string& out) {
  out += ",\"" + std::string(name) + "\":[";
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (i > 0) out += ',';
    if (logprobs[i].unscored) {
      out += "null";
      continue;
    }
    out += '{';
    AppendToken(logprobs[i], out);
    out += ",\"rank\":" + std::to_string(logprobs[i].rank) + ",\"top\":[";
    for (size_t k = 0; k < logprobs[i].top.size(); ++k) {
      out += k > 0 ? ",{" : "{";
      AppendToken(logprobs[i].top[k], out);
      out += '}';
    }
    out += "]}";
  }
  out += ']';
}

void AppendCalls(const std::vector<ToolCallDelta>& calls, std::string& out) {
  out += ",\"tool_calls\":[";
  for (size_t i = 0; i < calls.size(); ++i) {
    out += (i > 0 ? ",{\"index\":" : "{\"index\":") + std::to_string(calls[i].index);
    AppendText("id", calls[i].id, out);
    AppendText("name", calls[i].name, out);
    AppendText("arguments", calls[i].arguments, out);
    out += '}';
  }
  out += ']';
}

}  // namespace

void Join(const Delta& delta, ChoiceText& choice) {
  choice.text += delta.text;
  choice.reasoning += delta.reasoning;
  choice.ids.insert(choice.ids.end(), delta.ids.begin(), delta.ids.end());
  choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  for (const ToolCallDelta& piece : delta.tool_calls) {
    if (choice.tool_calls.empty() || choice.tool_calls.back().index != piece.index) {
      choice.tool_calls.push_back(piece);
    } else {
      choice.tool_calls.back().arguments += piece.arguments;
    }
  }
}

void AppendIds(std::span<const TokenId> ids, std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(ids[i]);
  }
  out += ']';
}

void AppendStart(const Started& started, std::string& out) {
  out += ",\"prompt_token_ids\":";
  AppendIds(started.prompt_ids, out);
  out += ",\"seed\":" + std::to_string(started.seed);
  if (started.prompt_logprobs.empty()) return;
  AppendLogprobs("prompt_logprobs", started.prompt_logprobs, out);
}

void AppendDelta(const Delta& delta, std::string& out) {
  out += ",\"index\":" + std::to_string(delta.choice);
  AppendText("text", delta.text, out);
  AppendText("reasoning", delta.reasoning, out);
  AppendCalls(delta.tool_calls, out);
  out += ",\"token_ids\":";
  AppendIds(delta.ids, out);
  if (!delta.logprobs.empty()) AppendLogprobs("logprobs", delta.logprobs, out);
}

void AppendChoiceEnd(const ChoiceEnd& end, std::string& out) {
  out += ",\"index\":" + std::to_string(end.choice);
  AppendText("finish_reason", end.finish_reason, out);
  if (end.stop_string) return AppendText("stop_reason", *end.stop_string, out);
  out += ",\"stop_reason\":" + (end.stop_token ? std::to_string(*end.stop_token) : "null");
}

void AppendUsage(const Usage& usage, std::string& out) {
  out += ",\"usage\":{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(usage.completion_tokens) +
         ",\"cached_tokens\":" + std::to_string(usage.cached_tokens) + "}";
}

void AppendOutputs(const std::vector<ChoiceText>& choices, std::string& out) {
  out += ",\"outputs\":[";
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChoiceText& choice = choices[i];
    out += i > 0 ? ",{" : "{";
    out += "\"token_ids\":";
    AppendIds(choice.ids, out);
    AppendText("text", choice.text, out);
    AppendText("reasoning", choice.reasoning, out);
    AppendCalls(choice.tool_calls, out);
    if (!choice.logprobs.empty()) AppendLogprobs("logprobs", choice.logprobs, out);
    AppendChoiceEnd(choice.end, out);
    out += '}';
  }
  out += ']';
}

void AppendError(const ApiError& error, std::string& out) {
  const std::string whole = ErrorJson(error);  // {"error":{…}}
  out += "," + whole.substr(1, whole.size() - 2);
}

}  // namespace quire
