#include "router/http/api_fields.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "common/sampling_params.h"
#include "router/core/sampling_checks.h"
#include "router/http/errors.h"

namespace quire {

using json::Value;

FieldError ReadBool(const Value& value, std::string_view name, bool& out) {
  auto read = json::AsBool(value, name);
  if (!read.ok()) return BadParamStatus(name, read.status());
  out = *read;
  return std::nullopt;
}

FieldError ReadFloat(const Value& value, std::string_view name, std::optional<float>& out) {
  auto read = json::AsDouble(value, name);
  if (!read.ok()) return BadParamStatus(name, read.status());
  out = static_cast<float>(*read);
  if (!std::isfinite(*out)) return BadParam(name, "must be a finite number");
  return std::nullopt;
}

FieldError ReadInt(const Value& value, std::string_view name, std::optional<int32_t>& out) {
  auto read = json::AsInt(value, name);
  if (!read.ok()) return BadParamStatus(name, read.status());
  if (*read < std::numeric_limits<int32_t>::min() || *read > std::numeric_limits<int32_t>::max()) {
    return BadParam(name, "must be in [-2147483648, 2147483647]");
  }
  out = static_cast<int32_t>(*read);
  return std::nullopt;
}

FieldError ReadString(const Value& value, std::string_view name, std::string& out) {
  auto read = json::AsString(value, name);
  if (!read.ok()) return BadParamStatus(name, read.status());
  out = std::string(*read);
  return std::nullopt;
}

FieldError ReadName(const Value& value, std::string_view name, std::string& out) {
  if (value.is_string() && value.get_string().size() > kMaxNameBytes) {
    return BadParam(name, "must have at most " + std::to_string(kMaxNameBytes) + " bytes");
  }
  return ReadString(value, name, out);
}

FieldError ReadTokenIds(const Value& value, std::string_view name, std::vector<TokenId>& out) {
  auto list = json::AsArray(value, name);
  if (!list.ok()) return BadParamStatus(name, list.status());
  out.clear();
  out.reserve((*list)->size());
  for (const Value& element : **list) {
    auto id = json::AsInt(element, name);
    if (!id.ok()) return BadParam(name, "must be a list of token ids, each an integer");
    if (*id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return BadParam(name, "token id " + std::to_string(*id) + " is outside [0, 2147483647]");
    }
    out.push_back(static_cast<TokenId>(*id));
  }
  return std::nullopt;
}

namespace {

FieldError ReadStrings(const Value& value, std::string_view name, std::vector<std::string>& out) {
  out.clear();
  if (value.is_string()) {
    if (!value.get_string().empty()) out.emplace_back(json::View(value.get_string()));
    return std::nullopt;
  }
  if (!value.is_array()) return BadParam(name, "must be a string or a list of strings");
  for (const Value& element : value.get_array()) {
    if (!element.is_string()) return BadParam(name, "must be a string or a list of strings");
    out.emplace_back(json::View(element.get_string()));
  }
  return std::nullopt;
}

FieldError ReadUint64(const Value& value, std::string_view name, uint64_t& out) {
  if (value.is_uint64()) {
    out = value.get_uint64();
    return std::nullopt;
  }
  auto read = json::AsInt(value, name);
  if (!read.ok()) return BadParamStatus(name, read.status());
  // Clients draw seeds from signed ranges too; the bits are the seed.
  out = static_cast<uint64_t>(*read);
  return std::nullopt;
}

FieldError ReadEarlyStopping(const Value& value, std::string_view name, EarlyStopping& out) {
  if (value.is_bool()) {
    out = value.get_bool() ? EarlyStopping::kWhenFull : EarlyStopping::kHeuristic;
    return std::nullopt;
  }
  if (value.is_string() && json::View(value.get_string()) == "never") {
    out = EarlyStopping::kNever;
    return std::nullopt;
  }
  return BadParam(name, "must be true, false or \"never\"");
}

FieldError ReadLogitBias(const Value& value, std::string_view name, ApiDraft& draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return BadParamStatus(name, object.status());
  for (const auto& member : **object) {
    int32_t id = 0;
    const std::string_view key(member.key().data(), member.key().size());
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return BadParam(name, "its keys must be token ids, written as decimal numbers");
    }
    std::optional<float> bias;
    if (auto problem = ReadFloat(member.value(), name, bias)) return problem;
    draft.common.sampling.logit_bias[id] = *bias;
  }
  return std::nullopt;
}

FieldError ReadStreamOptions(const Value& value, std::string_view name, ApiDraft& draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return BadParamStatus(name, object.status());
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
  if (!object.ok()) return BadParamStatus(name, object.status());
  ResumeRequest resume;
  const Value* seed = json::Find(**object, "seed");
  const Value* created = json::Find(**object, "created");
  const Value* model_id = json::Find(**object, "model_id");
  const Value* outputs = json::Find(**object, "outputs");
  if (!seed || !created || !model_id || !outputs) {
    return BadParam(name, "needs seed, created, model_id and outputs, all from the first chunk");
  }
  if (auto p = ReadUint64(*seed, "resume.seed", resume.seed)) return p;
  auto created_at = json::AsInt(*created, "resume.created");
  if (!created_at.ok()) return BadParamStatus("resume.created", created_at.status());
  resume.created = *created_at;
  if (auto p = ReadName(*model_id, "resume.model_id", resume.model_id)) return p;
  auto list = json::AsArray(*outputs, "resume.outputs");
  if (!list.ok()) return BadParamStatus("resume.outputs", list.status());
  if ((*list)->size() > kMaxChoices) {
    return BadParam("resume.outputs", "has more than " + std::to_string(kMaxChoices) + " entries");
  }
  for (const Value& output : **list) {
    const Value* ids = output.is_object() ? json::Find(output.get_object(), "token_ids") : nullptr;
    if (!ids) return BadParam("resume.outputs", "each entry must be an object with token_ids");
    if (auto p = ReadTokenIds(*ids, "resume.outputs", resume.outputs.emplace_back())) return p;
  }
  draft.common.resume = std::move(resume);
  return std::nullopt;
}

FieldError Ignore(const Value&, std::string_view, ApiDraft&) { return std::nullopt; }

FieldError OnlyFalse(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_bool() && !v.get_bool()) return std::nullopt;
  return BadParam(name, "is not served; only false is accepted");
}
FieldError OnlyOne(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_int64() && v.get_int64() == 1) return std::nullopt;
  return BadParam(name, "is not served; only 1 is accepted");
}
FieldError OnlyEmpty(const Value& v, std::string_view name, ApiDraft&) {
  const bool empty = (v.is_string() && v.get_string().empty()) ||
                     (v.is_array() && v.get_array().empty()) ||
                     (v.is_object() && v.get_object().empty());
  if (empty) return std::nullopt;
  return BadParam(name, "is not served; leave it out");
}
FieldError OnlyTextFormat(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_object()) {
    const Value* type = json::Find(v.get_object(), "type");
    if (type && type->is_string() && json::View(type->get_string()) == "text") return std::nullopt;
  }
  return BadParam(name, "only {\"type\": \"text\"} is served");
}
FieldError OnlyTextModality(const Value& v, std::string_view name, ApiDraft&) {
  if (v.is_array() && v.get_array().size() == 1 && v.get_array()[0].is_string() &&
      json::View(v.get_array()[0].get_string()) == "text") {
    return std::nullopt;
  }
  return BadParam(name, "only [\"text\"] is served");
}
FieldError OnlyNoToolChoice(const Value& v, std::string_view name, ApiDraft&) {
  // Without tools, which are refused by their own name, "auto" is the same as "none".
  if (v.is_string() &&
      (json::View(v.get_string()) == "none" || json::View(v.get_string()) == "auto")) {
    return std::nullopt;
  }
  return BadParam(name, "only \"none\" and \"auto\" are served");
}

using V = const Value&;
using N = std::string_view;
using D = ApiDraft&;

constexpr ApiField kFields[] = {
    // What the pipeline serves.
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
    {"temperature", kInBoth,
     [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.temperature); }},
    {"top_p", kInBoth, [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.top_p); }},
    {"top_k", kInBoth, [](V v, N n, D d) { return ReadInt(v, n, d.common.sampling.top_k); }},
    {"min_p", kInBoth, [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.min_p); }},
    {"typical_p", kInBoth,
     [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.typical_p); }},
    {"repetition_penalty", kInBoth,
     [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.repetition_penalty); }},
    {"frequency_penalty", kInBoth,
     [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.frequency_penalty); }},
    {"presence_penalty", kInBoth,
     [](V v, N n, D d) { return ReadFloat(v, n, d.common.sampling.presence_penalty); }},
    {"seed", kInBoth,
     [](V v, N n, D d) { return ReadUint64(v, n, d.common.sampling.seed.emplace()); }},
    {"max_tokens", kInBoth,
     [](V v, N n, D d) { return ReadInt(v, n, d.common.sampling.max_tokens); }},
    {"max_completion_tokens", kInBoth,
     [](V v, N n, D d) { return ReadInt(v, n, d.max_completion_tokens); }},
    {"min_tokens", kInBoth,
     [](V v, N n, D d) { return ReadInt(v, n, d.common.sampling.min_tokens); }},
    {"stop", kInBoth, [](V v, N n, D d) { return ReadStrings(v, n, d.common.sampling.stop); }},
    {"stop_token_ids", kInBoth,
     [](V v, N n, D d) { return ReadTokenIds(v, n, d.common.sampling.stop_token_ids); }},
    {"include_stop_str_in_output", kInBoth,
     [](V v, N n, D d) { return ReadBool(v, n, d.common.sampling.include_stop_str_in_output); }},
    {"ignore_eos", kInBoth,
     [](V v, N n, D d) { return ReadBool(v, n, d.common.sampling.ignore_eos); }},
    {"n", kInBoth,
     [](V v, N n, D d) {
       std::optional<int32_t> count;
       FieldError problem = ReadInt(v, n, count);
       if (!problem) d.common.sampling.n = *count;
       return problem;
     }},
    {"logprobs", kInCompletion,
     [](V v, N n, D d) { return ReadInt(v, n, d.common.sampling.logprobs); }},
    {"logprobs", kInChat, [](V v, N n, D d) { return ReadBool(v, n, d.logprobs_flag); }},
    {"top_logprobs", kInChat, [](V v, N n, D d) { return ReadInt(v, n, d.top_logprobs); }},
    {"prompt_logprobs", kInBoth,
     [](V v, N n, D d) { return ReadInt(v, n, d.common.sampling.prompt_logprobs); }},
    {"logit_bias", kInBoth, ReadLogitBias},
    {"allowed_token_ids", kInBoth,
     [](V v, N n, D d) { return ReadTokenIds(v, n, d.common.sampling.allowed_token_ids); }},
    {"bad_words", kInBoth,
     [](V v, N n, D d) { return ReadStrings(v, n, d.common.sampling.bad_words); }},
    {"skip_special_tokens", kInBoth,
     [](V v, N n, D d) { return ReadBool(v, n, d.common.sampling.skip_special_tokens); }},
    {"spaces_between_special_tokens", kInBoth,
     [](V v, N n, D) {
       // No served tokenizer puts spaces there, so that both values mean the same.
       bool ignored = true;
       return ReadBool(v, n, ignored);
     }},
    {"use_beam_search", kInBoth,
     [](V v, N n, D d) { return ReadBool(v, n, d.common.sampling.use_beam_search); }},
    {"length_penalty", kInBoth,
     [](V v, N n, D d) {
       std::optional<float> penalty;
       FieldError problem = ReadFloat(v, n, penalty);
       if (!problem) d.common.sampling.length_penalty = *penalty;
       return problem;
     }},
    {"early_stopping", kInBoth,
     [](V v, N n, D d) { return ReadEarlyStopping(v, n, d.common.sampling.early_stopping); }},
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
       if (!v.is_object()) return BadParam(n, "must be an object");
       d.chat.template_kwargs_json = json::Serialize(v);
       return {};
     }},
    // What changes nothing about the answer.
    {"user", kInBoth, Ignore},
    {"metadata", kInChat, Ignore},
    {"service_tier", kInChat, Ignore},
    {"safety_identifier", kInChat, Ignore},
    {"prompt_cache_key", kInChat, Ignore},
    {"parallel_tool_calls", kInChat, Ignore},
    {"stream_interval", kInBoth, Ignore},
    // What is known and not served, except at the value that means nothing.
    {"best_of", kInBoth, OnlyOne},
    {"suffix", kInCompletion, OnlyEmpty},
    {"echo", kInChat, OnlyFalse},
    {"response_format", kInBoth, OnlyTextFormat},
    {"structured_outputs", kInBoth, OnlyEmpty},
    {"guided_json", kInBoth, OnlyEmpty},
    {"guided_regex", kInBoth, OnlyEmpty},
    {"guided_choice", kInBoth, OnlyEmpty},
    {"guided_grammar", kInBoth, OnlyEmpty},
    {"tools", kInChat, OnlyEmpty},
    {"tool_choice", kInChat, OnlyNoToolChoice},
    {"functions", kInChat, OnlyEmpty},
    {"function_call", kInChat, OnlyNoToolChoice},
    {"modalities", kInChat, OnlyTextModality},
    {"audio", kInChat, OnlyEmpty},
    {"prediction", kInChat, OnlyEmpty},
    {"reasoning_effort", kInChat, OnlyEmpty},
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
    {"thinking_token_budget", kInBoth, OnlyEmpty},
};

}  // namespace

std::span<const ApiField> ApiFields() { return kFields; }

}  // namespace quire
