#include "router/http/api_fields.h"

#include "common/wire/sampling.h"
#include "router/chat/prediction_field.h"
#include "router/chat/tool_fields.h"
#include "router/core/result.h"
#include "router/core/sampling_checks.h"
#include "router/http/errors.h"

namespace quire {

using json::Value;

namespace {

FieldError ReadStreamOptions(const Value& value, std::string_view name, ApiDraft& draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  if (const Value* v = json::Find(**object, "include_usage")) {
    if (auto p = ReadBool(*v, "stream_options.include_usage", draft.out.include_usage)) return p;
  }
  if (const Value* v = json::Find(**object, "continuous_usage_stats")) {
    if (auto p =
            ReadBool(*v, "stream_options.continuous_usage_stats", draft.out.continuous_usage)) {
      return p;
    }
  }
  return std::nullopt;
}

FieldError ReadResume(const Value& value, std::string_view name, ApiDraft& draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  ResumeRequest resume;
  const Value* seed = json::Find(**object, "seed");
  const Value* created = json::Find(**object, "created");
  const Value* model_id = json::Find(**object, "model_id");
  const Value* outputs = json::Find(**object, "outputs");
  if (!seed || !created || !model_id || !outputs) {
    return InvalidField(name,
                        "needs seed, created, model_id and outputs, all from the first chunk");
  }
  if (auto p = ReadUint64(*seed, "resume.seed", resume.seed)) return p;
  auto created_at = json::AsInt(*created, "resume.created");
  if (!created_at.ok()) return ErrorFromStatus(created_at.status(), "resume.created");
  resume.created = *created_at;
  if (auto p = ReadName(*model_id, "resume.model_id", resume.model_id)) return p;
  auto list = json::AsArray(*outputs, "resume.outputs");
  if (!list.ok()) return ErrorFromStatus(list.status(), "resume.outputs");
  if ((*list)->size() > kMaxChoices) {
    return InvalidField("resume.outputs",
                        "has more than " + std::to_string(kMaxChoices) + " entries");
  }
  for (const Value& output : **list) {
    const Value* ids = output.is_object() ? json::Find(output.get_object(), "token_ids") : nullptr;
    if (!ids) return InvalidField("resume.outputs", "each entry must be an object with token_ids");
    if (auto p = ReadTokenIds(*ids, "resume.outputs", resume.outputs.emplace_back())) return p;
  }
  draft.common.resume = std::move(resume);
  return std::nullopt;
}

FieldError Ignore(const Value&, std::string_view, ApiDraft&) { return std::nullopt; }

FieldError OnlyFalse(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_bool() && !v.get_bool()) return std::nullopt;
  return InvalidField(name, "is not served; only false is accepted");
}
FieldError OnlyOne(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_int64() && v.get_int64() == 1) return std::nullopt;
  return InvalidField(name, "is not served; only 1 is accepted");
}
FieldError OnlyEmpty(const Value& v, std::string_view name, ApiDraft&) {
  const bool empty = (v.is_string() && v.get_string().empty()) ||
                     (v.is_array() && v.get_array().empty()) ||
                     (v.is_object() && v.get_object().empty());
  if (empty) return std::nullopt;
  return InvalidField(name, "is not served; leave it out");
}
FieldError OnlyTextModality(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_array() && v.get_array().size() == 1 && v.get_array()[0].is_string() &&
      json::View(v.get_array()[0].get_string()) == "text") {
    return std::nullopt;
  }
  return InvalidField(name, "only [\"text\"] is served");
}
using V = const Value&;
using N = std::string_view;
using D = ApiDraft&;

constexpr ApiField kFields[] = {
    // Fields that the pipeline serves.
    {"model", kInBoth, [](V v, N n, D d) { return ReadName(v, n, d.common.model); }},
    {"prompt", kInCompletion,
     [](V v, N, D d) -> FieldError {
       d.prompt = &v;
       return {};
     }},
    {"messages", kInChat,
     [](V v, N, D d) -> FieldError {
       d.messages = &v;
       return {};
     }},
    {"max_completion_tokens", kInBoth,
     [](V v, N n, D d) { return ReadInt(v, n, d.max_completion_tokens); }},
    {"logprobs", kInChat, [](V v, N n, D d) { return ReadBool(v, n, d.logprobs_flag); }},
    {"top_logprobs", kInChat, [](V v, N n, D d) { return ReadInt(v, n, d.top_logprobs); }},
    {"stream", kInBoth, [](V v, N n, D d) { return ReadBool(v, n, d.out.stream); }},
    {"stream_options", kInBoth, ReadStreamOptions},
    {"return_token_ids", kInBoth,
     [](V v, N n, D d) { return ReadBool(v, n, d.out.return_token_ids); }},
    {"return_tokens_as_token_ids", kInBoth,
     [](V v, N n, D d) { return ReadBool(v, n, d.out.return_tokens_as_ids); }},
    {"echo", kInCompletion, [](V v, N n, D d) { return ReadBool(v, n, d.common.echo); }},
    {"truncate_prompt_tokens", kInBoth,
     [](V v, N n, D d) { return ReadInt(v, n, d.common.truncate_prompt_tokens); }},
    {"priority", kInBoth,
     [](V v, N n, D d) {
       std::optional<int32_t> priority;
       FieldError problem = ReadInt(v, n, priority);
       if (!problem) d.common.priority = *priority;
       return problem;
     }},
    {"cache_salt", kInBoth, [](V v, N n, D d) { return ReadName(v, n, d.common.cache_salt); }},
    {"request_id", kInBoth, [](V v, N n, D d) { return ReadName(v, n, d.common.request_id); }},
    {"resume", kInBoth, ReadResume},
    {"add_special_tokens", kInBoth,
     [](V v, N n, D d) {
       d.add_special_tokens_set = true;
       return ReadBool(v, n, d.add_special_tokens);
     }},
    {"add_generation_prompt", kInChat,
     [](V v, N n, D d) { return ReadBool(v, n, d.chat.add_generation_prompt); }},
    {"continue_final_message", kInChat,
     [](V v, N n, D d) { return ReadBool(v, n, d.chat.continue_final_message); }},
    {"chat_template_kwargs", kInChat,
     [](V v, N n, D d) -> FieldError {
       if (!v.is_object()) return InvalidField(n, "must be an object");
       d.chat.template_kwargs_json = json::Serialize(v);
       return {};
     }},
    {"tools", kInChat,
     [](V v, N, D d) -> FieldError {
       d.tools = &v;
       return {};
     }},
    {"tool_choice", kInChat, [](V v, N n, D d) { return ReadToolChoice(v, n, d.common.tool_use); }},
    {"parallel_tool_calls", kInChat,
     [](V v, N n, D d) { return ReadBool(v, n, d.common.tool_use.parallel); }},
    {"functions", kInChat,
     [](V v, N, D d) -> FieldError {
       d.functions = &v;
       return {};
     }},
    {"function_call", kInChat,
     [](V v, N n, D d) { return ReadFunctionCall(v, n, d.common.tool_use); }},
    {"reasoning_effort", kInChat,
     [](V v, N n, D d) { return ReadEffort(v, n, d.common.thinking); }},
    {"thinking_token_budget", kInChat,
     [](V v, N, D d) { return ReadBudget(v, "thinking_token_budget", d.common.thinking); }},
    {"thinking_budget", kInChat,
     [](V v, N, D d) { return ReadBudget(v, "thinking_budget", d.common.thinking); }},
    {"prediction", kInChat,
     [](V v, N n, D d) { return ReadPrediction(v, n, d.common.prediction.emplace()); }},
    {"include_reasoning", kInChat,
     [](V v, N n, D d) { return ReadBool(v, n, d.out.include_reasoning); }},
    // Fields that change nothing about the answer.
    {"user", kInBoth, Ignore},
    {"metadata", kInChat, Ignore},
    {"service_tier", kInChat, Ignore},
    {"safety_identifier", kInChat, Ignore},
    {"prompt_cache_key", kInChat, Ignore},
    {"stream_interval", kInBoth, Ignore},
    // Fields that are known and not served, except at their neutral value.
    {"best_of", kInBoth, OnlyOne},
    {"suffix", kInCompletion, OnlyEmpty},
    {"echo", kInChat, OnlyFalse},
    {"modalities", kInChat, OnlyTextModality},
    {"audio", kInChat, OnlyEmpty},
    {"verbosity", kInChat, OnlyEmpty},
    {"web_search_options", kInChat, OnlyEmpty},
    {"store", kInChat, OnlyFalse},
    {"documents", kInChat, OnlyEmpty},
    {"chat_template", kInChat, OnlyEmpty},
    {"mm_processor_kwargs", kInBoth, OnlyEmpty},
    {"prompt_embeds", kInCompletion, OnlyEmpty},
    {"logits_processors", kInBoth, OnlyEmpty},
    {"truncation_side", kInBoth, OnlyEmpty},
    {"kv_transfer_params", kInBoth, OnlyEmpty},
    {"thinking_token_budget", kInCompletion, OnlyEmpty},
};

}  // namespace

std::span<const ApiField> ApiFields() { return kFields; }

}  // namespace quire
