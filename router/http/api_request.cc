#include "router/http/api_request.h"

#include <algorithm>
#include <charconv>

#include "common/wire/sampling.h"
#include "router/chat/constraint_fields.h"
#include "router/chat/message_fields.h"
#include "router/chat/sampling_fields.h"
#include "router/chat/tool_fields.h"
#include "router/core/result.h"
#include "router/core/sampling_checks.h"
#include "router/http/api_fields.h"
#include "router/http/errors.h"
#include "router/pipeline/held_bytes.h"

namespace quire {
namespace {

using json::Value;

constexpr size_t kMaxUnknownFieldsListed = 16;

// They are made, and their source is released.
void ChargeOnly(const RequestLimits& limits, const std::vector<GenerateRequest>& requests) {
  if (limits.hold == nullptr) return;
  size_t bytes = 0;
  for (const GenerateRequest& request : requests) {
    bytes += HeldBytes(request) + PromptBytes(request.prompt);
  }
  limits.hold->Resize(bytes);
}

FieldError ReadField(const json::Object::value_type& member, unsigned where,
                     const RequestLimits& limits, ApiDraft& draft) {
  const std::string_view name(member.key().data(), member.key().size());
  const Value& value = member.value();
  for (const ApiField& field : ApiFields()) {
    if (field.name != name || (field.where & where) == 0) continue;
    return value.is_null() ? std::nullopt : field.read(value, name, draft);
  }
  if (const SamplingField* wish = FindSamplingField(name)) {
    return value.is_null() ? std::nullopt : wish->read(value, name, draft.common.sampling);
  }
  if (const ConstraintField* shape = FindConstraintField(name)) {
    return value.is_null() ? std::nullopt : shape->read(value, limits, draft.constraint);
  }
  if (draft.out.unknown_fields.size() < kMaxUnknownFieldsListed) {
    draft.out.unknown_fields.emplace_back(name.substr(0, 64));
  }
  return std::nullopt;
}

FieldError ReadFields(const json::Object& object, unsigned where, const RequestLimits& limits,
                      ApiDraft& draft) {
  for (const auto& member : object) {
    if (auto problem = ReadField(member, where, limits, draft)) return problem;
  }
  return SettleConstraint(std::move(draft.constraint), draft.common);
}

FieldError AddTextPrompt(const Value& value, ApiDraft& draft) {
  const std::string_view text = json::View(value.get_string());
  if (text.empty()) return InvalidField("prompt", "must not be empty; give at least one character");
  GenerateRequest request = draft.common;
  request.prompt = TextPrompt{std::string(text), draft.add_special_tokens};
  draft.out.requests.push_back(std::move(request));
  return std::nullopt;
}

FieldError AddTokenPrompt(const Value& value, ApiDraft& draft) {
  TokenPrompt prompt;
  if (auto problem = ReadTokenIds(value, "prompt", prompt.ids)) return problem;
  if (prompt.ids.empty())
    return InvalidField("prompt", "must not be empty; give at least one token");
  GenerateRequest request = draft.common;
  request.prompt = std::move(prompt);
  draft.out.requests.push_back(std::move(request));
  return std::nullopt;
}

FieldError ReadPrompts(ApiDraft& draft, const RequestLimits& limits) {
  constexpr std::string_view kShapes =
      "must be a string, a list of strings, a list of token ids, or a list of such lists";
  if (!draft.prompt) return InvalidField("prompt", "is missing");
  const Value& value = *draft.prompt;
  if (value.is_string()) return AddTextPrompt(value, draft);
  if (!value.is_array()) return InvalidField("prompt", kShapes);
  const json::Array& list = value.get_array();
  if (list.empty()) return InvalidField("prompt", "must not be an empty list");
  if (list[0].is_number()) return AddTokenPrompt(value, draft);
  if (list.size() > limits.max_prompts) {
    return PastLimit("prompt", "--max-prompts", limits.max_prompts,
                     limits.counters ? &limits.counters->prompts : nullptr);
  }
  if (auto problem = CheckChoiceCount(list.size(), draft.common.sampling.n, limits)) return problem;
  size_t bytes = list.size() * HeldBytes(draft.common);
  for (const Value& element : list) {
    if (element.is_string()) bytes += element.get_string().size();
    if (element.is_array()) bytes += element.get_array().size() * kBytesPerPromptToken;
  }
  if (auto problem = ChargeMore(limits, bytes)) return problem;
  if (draft.common.resume && list.size() > 1) {
    return InvalidField("resume", "is served for one prompt at a time");
  }
  for (const Value& element : list) {
    if (element.kind() != list[0].kind()) return InvalidField("prompt", kShapes);
    FieldError problem;
    if (element.is_string()) {
      problem = AddTextPrompt(element, draft);
    } else if (element.is_array()) {
      problem = AddTokenPrompt(element, draft);
    } else {
      problem = InvalidField("prompt", kShapes);
    }
    if (problem) return problem;
  }
  return std::nullopt;
}

FieldError CheckCount(const Value& messages, const RequestLimits& limits) {
  if (!messages.is_array()) return std::nullopt;
  return CheckMessageCount(messages.get_array().size(), limits);
}

// The older fields are the newer ones under other names; answers to them have the older shape.
FieldError SettleTools(ApiDraft& draft, const RequestLimits& limits) {
  if (draft.functions != nullptr) {
    if (draft.tools != nullptr) return InvalidField("functions", "cannot stand beside tools");
    if (auto problem =
            ReadFunctions(*draft.functions, "functions", limits, draft.chat.tools_json)) {
      return problem;
    }
    draft.out.functions = true;
    draft.common.tool_use.parallel = false;
  }
  if (draft.tools != nullptr) {
    if (auto problem = ReadTools(*draft.tools, "tools", limits, draft.chat.tools_json)) {
      return problem;
    }
  }
  const std::string_view field = draft.out.functions ? "function_call" : "tool_choice";
  return CheckToolUse(draft.common.tool_use, draft.chat.tools_json, field);
}

FieldError ReadChat(json::Object& body, ApiDraft& draft, const RequestLimits& limits) {
  if (!draft.messages) return InvalidField("messages", "is missing");
  Value& messages = body.at("messages");
  if (auto problem = CheckCount(messages, limits)) return problem;
  if (auto problem = ReadMessages(messages, limits, draft.chat.messages_json)) return problem;
  if (draft.add_special_tokens_set) draft.chat.add_special_tokens = draft.add_special_tokens;
  if (draft.chat.add_generation_prompt && draft.chat.continue_final_message) {
    return InvalidField("continue_final_message",
                        "needs add_generation_prompt to be false: only one of the two can be true");
  }
  if (auto problem = SettleTools(draft, limits)) return problem;
  GenerateRequest request = draft.common;
  request.chat_defaults = true;
  request.read_answer = true;
  request.prompt = std::move(draft.chat);
  draft.out.requests.push_back(std::move(request));
  return std::nullopt;
}

FieldError SettleSampling(ApiKind kind, ApiDraft& draft) {
  SamplingOptions& sampling = draft.common.sampling;
  if (draft.max_completion_tokens) {
    if (*draft.max_completion_tokens < 1) {
      return InvalidField("max_completion_tokens", "must be in [1, the context less the prompt]");
    }
    sampling.max_tokens = draft.max_completion_tokens;
    sampling.max_tokens_field = "max_completion_tokens";
  }
  if (kind == ApiKind::kChat) {
    if (draft.top_logprobs) {
      if (*draft.top_logprobs < 0 || *draft.top_logprobs > kMaxLogprobs) {
        return InvalidField("top_logprobs", "must be in [0, 20]");
      }
      if (!draft.logprobs_flag && *draft.top_logprobs > 0) {
        return InvalidField("top_logprobs", "needs logprobs to be true");
      }
    }
    if (draft.logprobs_flag) sampling.logprobs = draft.top_logprobs.value_or(0);
  }
  if (draft.out.continuous_usage && !draft.out.include_usage) draft.out.include_usage = true;
  draft.out.prompt_logprobs = sampling.prompt_logprobs;
  if (auto problem = CheckSampling(sampling, draft.common.echo)) return problem;
  // An echo shows the logprobs of the prompt in the same way as those of the outputs.
  if (draft.common.echo && sampling.logprobs) {
    sampling.prompt_logprobs = std::max(sampling.prompt_logprobs.value_or(0), *sampling.logprobs);
  }
  return std::nullopt;
}

// Collects the few fields of /tokenize and /detokenize by name; the rest is listed as unknown.
void ListUnknown(const json::Object& object, std::initializer_list<std::string_view> known,
                 std::vector<std::string>& out) {
  for (const auto& member : object) {
    const std::string_view name(member.key().data(), member.key().size());
    bool found = false;
    for (std::string_view k : known) found = found || k == name;
    if (!found && out.size() < kMaxUnknownFieldsListed) out.emplace_back(name.substr(0, 64));
  }
}

FieldError ReadTokenizeChat(json::Object& object, const RequestLimits& limits, TokenizeBody& out) {
  ChatPrompt chat;
  Value& messages = object.at("messages");
  if (auto problem = CheckCount(messages, limits)) return problem;
  if (auto problem = ReadMessages(messages, limits, chat.messages_json)) return problem;
  const struct {
    std::string_view name;
    bool& target;
  } flags[] = {{"add_generation_prompt", chat.add_generation_prompt},
               {"continue_final_message", chat.continue_final_message},
               {"add_special_tokens", chat.add_special_tokens}};
  for (const auto& flag : flags) {
    if (const Value* v = json::Find(object, flag.name)) {
      if (auto problem = ReadBool(*v, flag.name, flag.target)) return problem;
    }
  }
  if (const Value* v = json::Find(object, "chat_template_kwargs")) {
    if (!v->is_object()) return InvalidField("chat_template_kwargs", "must be an object");
    chat.template_kwargs_json = json::Serialize(*v);
  }
  if (const Value* v = json::Find(object, "tools")) {
    if (auto problem = ReadTools(*v, "tools", limits, chat.tools_json)) return problem;
  }
  out.prompt = std::move(chat);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ParseApiRequest(ApiKind kind, std::string_view body,
                                        const RequestLimits& limits, ApiRequest& out) {
  out = ApiRequest();
  out.kind = kind;
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  ApiDraft draft(out);
  const unsigned where = kind == ApiKind::kChat ? kInChat : kInCompletion;
  if (auto problem = ChargeMore(limits, body.size())) return problem;  // what is taken out of it
  if (auto problem = ReadFields(root.get_object(), where, limits, draft)) return problem;
  if (auto problem = SettleSampling(kind, draft)) return problem;
  if (auto problem = CheckTruncation(draft.common.truncate_prompt_tokens)) return problem;
  draft.common.streaming = out.stream;
  const bool chat = kind == ApiKind::kChat;
  if (auto problem =
          chat ? ReadChat(root.get_object(), draft, limits) : ReadPrompts(draft, limits)) {
    return problem;
  }
  for (const GenerateRequest& request : out.requests) {
    if (auto problem = CheckLimits(request, limits)) return problem;
  }
  ChargeOnly(limits, out.requests);
  return std::nullopt;
}

std::optional<ApiError> ParseTokenizeBody(std::string_view body, TokenizeBody& out,
                                          const RequestLimits& limits) {
  out = TokenizeBody();
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  json::Object& object = root.get_object();
  ListUnknown(object,
              {"model", "prompt", "messages", "add_special_tokens", "return_token_strs",
               "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools"},
              out.unknown_fields);
  if (const Value* v = json::Find(object, "model")) {
    if (auto problem = ReadName(*v, "model", out.model)) return problem;
  }
  if (const Value* v = json::Find(object, "return_token_strs")) {
    if (auto problem = ReadBool(*v, "return_token_strs", out.return_token_strings)) return problem;
  }
  if (json::Find(object, "messages") != nullptr) {
    if (auto problem = ReadTokenizeChat(object, limits, out)) return problem;
    return CheckPromptSize(out.prompt, limits);
  }
  const Value* prompt = json::Find(object, "prompt");
  if (!prompt) return InvalidField("prompt", "is missing; give prompt or messages");
  TextPrompt text;
  if (auto problem = ReadString(*prompt, "prompt", text.text)) return problem;
  if (const Value* v = json::Find(object, "add_special_tokens")) {
    if (auto problem = ReadBool(*v, "add_special_tokens", text.add_special_tokens)) return problem;
  }
  out.prompt = std::move(text);
  return CheckPromptSize(out.prompt, limits);
}

std::optional<ApiError> ParseDetokenizeBody(std::string_view body, DetokenizeBody& out,
                                            const RequestLimits& limits) {
  out = DetokenizeBody();
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  const json::Object& object = root.get_object();
  ListUnknown(object, {"model", "tokens"}, out.unknown_fields);
  if (const Value* v = json::Find(object, "model")) {
    if (auto problem = ReadName(*v, "model", out.model)) return problem;
  }
  const Value* tokens = json::Find(object, "tokens");
  if (!tokens) return InvalidField("tokens", "is missing");
  return ReadTokenIds(*tokens, "tokens", out.ids);
}

std::optional<uint64_t> ParseTimeoutMs(std::string_view text, double default_unit_ms) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(rest, end - rest);
  double scale = default_unit_ms;
  if (unit == "ms") {
    scale = 1;
  } else if (unit == "s") {
    scale = 1000;
  } else if (unit == "m") {
    scale = 60'000;
  } else if (!unit.empty()) {
    return std::nullopt;
  }
  const double ms = number * scale;
  if (!(ms >= 1 && ms <= 86'400'000)) return std::nullopt;
  return static_cast<uint64_t>(ms);
}

}  // namespace quire
