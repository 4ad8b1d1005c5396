#include "router/grpc/messages.h"

#include <algorithm>

#include "common/grpc/status_details.h"
#include "common/json/json.h"
#include "common/wire/sampling.h"
#include "router/chat/constraint_fields.h"
#include "router/chat/json_fields.h"
#include "router/chat/tool_fields.h"
#include "router/core/sampling_checks.h"

namespace quire {
namespace {

using Problem = std::optional<ApiError>;

ApiError Bad(std::string field, const std::string& message) {
  ApiError error;
  error.code = ApiCode::kInvalidArgument;
  error.message = field + ": " + message;
  error.param = std::move(field);
  return error;
}

void ReadNumbers(const v1::SamplingOptions& in, SamplingOptions& out) {
#define QUIRE_READ_NUMBER(name, range, feature) \
  if (in.has_##name()) out.name = in.name();
  QUIRE_SAMPLING_NUMBERS(QUIRE_READ_NUMBER)
#undef QUIRE_READ_NUMBER
#define QUIRE_READ_LIST(name, most, feature) out.name.assign(in.name().begin(), in.name().end());
  QUIRE_SAMPLING_LISTS(QUIRE_READ_LIST)
#undef QUIRE_READ_LIST
  if (in.has_seed()) out.seed = in.seed();
  if (in.has_n()) out.n = in.n();
  if (in.has_logprobs()) out.logprobs = in.logprobs();
  if (in.has_prompt_logprobs()) out.prompt_logprobs = in.prompt_logprobs();
}

Problem ReadBeams(const v1::SamplingOptions& in, SamplingOptions& out) {
  out.use_beam_search = in.use_beam_search();
  if (in.early_stopping() < v1::HEURISTIC || in.early_stopping() > v1::NEVER) {
    return Bad("early_stopping", "must be HEURISTIC, WHEN_FULL or NEVER");
  }
  out.early_stopping = static_cast<EarlyStopping>(in.early_stopping());
  return std::nullopt;
}

Problem ReadSampling(const v1::SamplingOptions& in, bool echo, SamplingOptions& out) {
  ReadNumbers(in, out);
  out.stop.assign(in.stop().begin(), in.stop().end());
  out.include_stop_str_in_output = in.include_stop_str_in_output();
  out.ignore_eos = in.ignore_eos();
  for (const auto& [id, bias] : in.logit_bias()) out.logit_bias[id] = bias;
  out.bad_words.assign(in.bad_words().begin(), in.bad_words().end());
  if (in.has_skip_special_tokens()) out.skip_special_tokens = in.skip_special_tokens();
  if (auto problem = ReadBeams(in, out)) return problem;
  return CheckSampling(out, echo);
}

Problem ReadIds(const v1::TokenIds& in, const char* field, std::vector<TokenId>& out) {
  out.assign(in.ids().begin(), in.ids().end());
  for (const TokenId id : out) {
    if (id < 0) return Bad(field, "token ids must not be negative");
  }
  return std::nullopt;
}

Problem ReadResume(const v1::Resume& in, std::optional<ResumeRequest>& out) {
  if (in.model_id().empty()) return Bad("resume.model_id", "is missing; the first message had it");
  if (in.outputs_size() > kMaxChoices) {
    return Bad("resume.outputs", "has more than " + std::to_string(kMaxChoices) + " entries");
  }
  ResumeRequest resume;
  resume.seed = in.seed();
  resume.created = in.created();
  resume.model_id = in.model_id();
  for (const v1::TokenIds& output : in.outputs()) {
    if (auto p = ReadIds(output, "resume.outputs", resume.outputs.emplace_back())) return p;
  }
  out = std::move(resume);
  return std::nullopt;
}

std::string AsJson(const v1::ResponseFormat::Choices& choices) {
  std::string list = "[";
  for (const std::string& text : choices.texts()) {
    if (list.size() > 1) list += ',';
    json::AppendQuoted(text, list);
  }
  return list + "]";
}

Problem ReadFormatCase(const v1::ResponseFormat& in, const RequestLimits& limits,
                       ConstraintDraft& out) {
  switch (in.format_case()) {
    case v1::ResponseFormat::kJsonSchema:
      return ReadSchemaText(in.json_schema(), "response_format.json_schema", limits, out);
    case v1::ResponseFormat::kJsonObject:
      if (!in.json_object()) return std::nullopt;
      return SetConstraint(ConstraintKind::kJsonObject, "", "response_format.json_object", out);
    case v1::ResponseFormat::kRegex:
      return SetConstraint(ConstraintKind::kRegex, in.regex(), "response_format.regex", out);
    case v1::ResponseFormat::kChoice:
      if (in.choice().texts().empty()) {
        return Bad("response_format.choice", "must not be empty; name at least one text");
      }
      return SetConstraint(ConstraintKind::kChoice, AsJson(in.choice()), "response_format.choice",
                           out);
    case v1::ResponseFormat::kGrammar:
      return SetGrammar(in.grammar(), "response_format.grammar", out);
    case v1::ResponseFormat::kLark:
      return SetConstraint(ConstraintKind::kLark, in.lark(), "response_format.lark", out);
    case v1::ResponseFormat::kStructuralTag:
      return ReadTagText(in.structural_tag(), "response_format.structural_tag", limits, out);
    case v1::ResponseFormat::FORMAT_NOT_SET:
      break;
  }
  return std::nullopt;
}

Problem ReadFormat(const v1::ResponseFormat& in, const RequestLimits& limits,
                   GenerateRequest& out) {
  ConstraintDraft draft;
  if (auto problem = ReadFormatCase(in, limits, draft)) return problem;
  if (auto problem = SetWhitespacePattern(in.whitespace_pattern(),
                                          "response_format.whitespace_pattern", draft)) {
    return problem;
  }
  draft.constraint.compact = in.disable_any_whitespace();
  if (in.disable_any_whitespace()) {
    draft.compact_field = "response_format.disable_any_whitespace";
  }
  draft.constraint.closed = in.disable_additional_properties();
  if (in.disable_additional_properties()) {
    draft.closed_field = "response_format.disable_additional_properties";
  }
  return SettleConstraint(std::move(draft), out);
}

// The parts that Generate and Chat share.
template <class Message>
Problem ReadCommon(const Message& in, bool echo, const RequestLimits& limits,
                   GenerateRequest& out) {
  out.model = in.model();
  out.streaming = true;
  out.priority = in.priority();
  out.cache_salt = in.cache_salt();
  out.want_text = !in.omit_text();
  out.echo = echo;
  SamplingOptions& sampling = out.sampling;
  if (auto problem = ReadSampling(in.sampling(), echo, sampling)) return problem;
  // An echo shows the logprobs of the prompt in the same way as those of the outputs.
  if (echo && sampling.logprobs) {
    sampling.prompt_logprobs = std::max(sampling.prompt_logprobs.value_or(0), *sampling.logprobs);
  }
  if (in.has_truncate_prompt_tokens()) out.truncate_prompt_tokens = in.truncate_prompt_tokens();
  if (auto problem = CheckTruncation(out.truncate_prompt_tokens)) return problem;
  if (in.has_prediction()) out.prediction = in.prediction();
  if (auto problem = ReadFormat(in.response_format(), limits, out)) return problem;
  if (in.has_resume()) return ReadResume(in.resume(), out.resume);
  return std::nullopt;
}

// JSON that a message holds as text.
struct JsonRule {
  const RequestLimits& limits;
  bool list;  // else an object
  size_t outer_depth = 0;
};

Problem CheckJson(const std::string& text, const char* field, const JsonRule& rule,
                  std::string& out) {
  const bool list = rule.list;
  auto value = ReadJson(text, rule.limits, rule.outer_depth);
  if (absl::IsUnavailable(value.status())) return TooManyLargeRequests();
  if (!value.ok()) return Bad(field, StatusMessage(value.status()));
  if (list ? !value->is_array() : !value->is_object()) {
    return Bad(field, list ? "must be a JSON list" : "must be a JSON object");
  }
  out = json::Serialize(*value);
  return std::nullopt;
}

void AppendMember(const char* name, std::string_view value, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  json::AppendQuoted(value, out);
}

// The list of messages and a message.
constexpr size_t kDepthOfCalls = 2;

Problem ReadMessages(const v1::ChatRequest& in, const RequestLimits& limits, std::string& out) {
  const size_t count = static_cast<size_t>(in.messages_size());
  if (auto problem = CheckMessageCount(count, limits)) return problem;
  if (in.messages_size() == 0) return Bad("messages", "must hold at least one message");
  RequestLimits rest = limits;  // what the arguments of all calls may take
  out = "[";
  for (int i = 0; i < in.messages_size(); ++i) {
    const v1::ChatMessage& message = in.messages(i);
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (message.role().empty()) return Bad(where + ".role", "must be a role such as user");
    if (i > 0) out += ',';
    out += "{\"role\":";
    json::AppendQuoted(message.role(), out);
    AppendMember("content", message.content(), out);
    if (!message.name().empty()) AppendMember("name", message.name(), out);
    if (!message.tool_call_id().empty()) AppendMember("tool_call_id", message.tool_call_id(), out);
    if (!message.reasoning().empty()) {
      AppendMember("reasoning", message.reasoning(), out);
      AppendMember("reasoning_content", message.reasoning(), out);
    }
    if (!message.tool_calls_json().empty()) {
      std::string calls;
      const std::string field = where + ".tool_calls_json";
      if (auto p = CheckJson(message.tool_calls_json(), field.c_str(),
                             {limits, true, kDepthOfCalls}, calls))
        return p;
      json::Object with_calls;
      with_calls["tool_calls"] = json::Parse(calls).value();
      if (auto p = ReadCalls(with_calls, where, rest)) return p;
      calls = json::Serialize(with_calls["tool_calls"]);
      out += ",\"tool_calls\":" + calls;
    }
    out += '}';
  }
  out += ']';
  return std::nullopt;
}

Problem ReadChat(const v1::ChatRequest& in, const RequestLimits& limits, ChatPrompt& out) {
  if (auto problem = ReadMessages(in, limits, out.messages_json)) return problem;
  if (!in.tools_json().empty()) {
    auto tools = ReadJson(in.tools_json(), limits);
    if (absl::IsUnavailable(tools.status())) return TooManyLargeRequests();
    if (!tools.ok()) return Bad("tools_json", StatusMessage(tools.status()));
    if (auto p = ReadTools(*tools, "tools_json", limits, out.tools_json)) return p;
  }
  if (!in.template_kwargs_json().empty()) {
    if (auto p = CheckJson(in.template_kwargs_json(), "template_kwargs_json", {limits, false},
                           out.template_kwargs_json)) {
      return p;
    }
  }
  if (in.has_add_generation_prompt()) out.add_generation_prompt = in.add_generation_prompt();
  return std::nullopt;
}

Problem ReadTools(const v1::ChatRequest& in, const std::string& tools_json, GenerateRequest& out) {
  ToolUse& use = out.tool_use;
  use.parallel = !in.has_parallel_tool_calls() || in.parallel_tool_calls();
  const v1::ToolChoice& choice = in.tool_choice();
  if (choice.choice_case() == v1::ToolChoice::kFunction) {
    use.choice = ToolChoice::kNamed;
    use.name = choice.function();
  } else if (choice.mode() == v1::ToolChoice::NONE) {
    use.choice = ToolChoice::kNone;
  } else if (choice.mode() == v1::ToolChoice::REQUIRED) {
    use.choice = ToolChoice::kRequired;
  } else if (choice.mode() != v1::ToolChoice::AUTO) {
    return Bad("tool_choice.mode", "must be AUTO, NONE or REQUIRED");
  }
  if (in.has_enable_thinking()) out.thinking.enabled = in.enable_thinking();
  if (in.has_thinking_token_budget()) {
    out.thinking.budget = in.thinking_token_budget();
    out.thinking.budget_field = "thinking_token_budget";
  }
  if (!in.reasoning_effort().empty()) {
    const json::Value effort(json::BoostView(in.reasoning_effort()));
    if (auto p = ReadEffort(effort, "reasoning_effort", out.thinking)) return p;
  }
  return CheckToolUse(use, tools_json, "tool_choice");
}

absl::StatusCode CodeOf(ApiCode code) {
  switch (code) {
    case ApiCode::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case ApiCode::kUnauthenticated:
      return absl::StatusCode::kUnauthenticated;
    case ApiCode::kPermissionDenied:
      return absl::StatusCode::kPermissionDenied;
    case ApiCode::kNotFound:
      return absl::StatusCode::kNotFound;
    case ApiCode::kConflict:
      return absl::StatusCode::kFailedPrecondition;
    case ApiCode::kTooLarge:
    case ApiCode::kRateLimited:
      return absl::StatusCode::kResourceExhausted;
    case ApiCode::kCancelled:
      return absl::StatusCode::kCancelled;
    case ApiCode::kInternal:
      return absl::StatusCode::kInternal;
    case ApiCode::kUnimplemented:
      return absl::StatusCode::kUnimplemented;
    case ApiCode::kUnavailable:
      return absl::StatusCode::kUnavailable;
    case ApiCode::kDeadlineExceeded:
      return absl::StatusCode::kDeadlineExceeded;
  }
  return absl::StatusCode::kInternal;
}

void ToProto(const TokenLogprob& in, v1::TokenLogprob& out) {
  out.set_id(in.id);
  out.set_token(in.token);
  out.set_token_bytes(in.bytes);
  out.set_logprob(in.logprob);
  out.set_rank(in.rank);
  out.set_unscored(in.unscored);
  for (const TokenLogprob& top : in.top) ToProto(top, *out.add_top());
}

}  // namespace

Problem FromProto(const v1::GenerateRequest& in, GenerateRequest& out,
                  const RequestLimits& limits) {
  if (auto problem = ReadCommon(in, in.echo(), limits, out)) return problem;
  if (in.prompt_case() == v1::GenerateRequest::kText) {
    if (in.text().empty()) return Bad("text", "must not be empty; give at least one character");
    TextPrompt prompt{in.text(), true, "text"};
    if (in.has_add_special_tokens()) prompt.add_special_tokens = in.add_special_tokens();
    out.prompt = std::move(prompt);
    return CheckLimits(out, limits);
  }
  if (in.prompt_case() == v1::GenerateRequest::kTokenIds) {
    TokenPrompt prompt{{}, "token_ids"};
    if (in.token_ids().ids().empty()) {
      return Bad("token_ids", "must not be empty; give at least one token");
    }
    if (auto problem = ReadIds(in.token_ids(), "token_ids", prompt.ids)) return problem;
    out.prompt = std::move(prompt);
    return CheckLimits(out, limits);
  }
  return Bad("prompt", "is missing; give text or token_ids");
}

Problem FromProto(const v1::ChatRequest& in, GenerateRequest& out, const RequestLimits& limits) {
  if (auto problem = ReadCommon(in, false, limits, out)) return problem;
  out.chat_defaults = true;
  out.read_answer = !in.omit_text();
  ChatPrompt prompt;
  if (auto problem = ReadChat(in, limits, prompt)) return problem;
  if (auto problem = ReadTools(in, prompt.tools_json, out)) return problem;
  out.prompt = std::move(prompt);
  return CheckLimits(out, limits);
}

Problem FromProto(const v1::TokenizeRequest& in, Prompt& out, const RequestLimits& limits) {
  if (in.input_case() == v1::TokenizeRequest::kText) {
    TextPrompt prompt{in.text(), true, "text"};
    if (in.has_add_special_tokens()) prompt.add_special_tokens = in.add_special_tokens();
    out = std::move(prompt);
    return CheckPromptSize(out, limits);
  }
  if (in.input_case() == v1::TokenizeRequest::kChat) {
    ChatPrompt prompt;
    if (auto problem = ReadChat(in.chat(), limits, prompt)) return problem;
    if (in.has_add_special_tokens()) prompt.add_special_tokens = in.add_special_tokens();
    out = std::move(prompt);
    return CheckPromptSize(out, limits);
  }
  return Bad("input", "is missing; give text or chat");
}

void ToProto(const Started& in, const std::string& request_id, v1::Started& out) {
  out.set_request_id(request_id);
  out.set_model(in.model);
  out.set_model_id(in.model_id);
  out.set_seed(in.seed);
  out.set_created(in.created);
  out.mutable_prompt_token_ids()->Add(in.prompt_ids.begin(), in.prompt_ids.end());
}

void ToProto(std::span<const TokenLogprob> logprobs, uint64_t first_position, v1::PromptPart& out) {
  out.set_first_position(first_position);
  for (const TokenLogprob& logprob : logprobs) ToProto(logprob, *out.add_logprobs());
}

bool MayFollow(const Delta& in, const v1::Delta& before) {
  const bool after_calls = !before.tool_calls().empty();
  const bool after_text = after_calls || !before.text().empty();
  return (in.text.empty() || !after_calls) && (in.reasoning.empty() || !after_text);
}

void AppendToProto(const Delta& in, v1::Delta& out) {
  if (out.token_ids().empty() && out.text().empty() && out.reasoning().empty() &&
      out.tool_calls().empty()) {
    out.set_choice(in.choice);
    out.set_first_index(in.first_index);
  }
  if (!in.reasoning.empty()) out.mutable_reasoning()->append(in.reasoning);
  for (const ToolCallDelta& piece : in.tool_calls) {
    const bool goes_on = piece.id.empty() && !out.tool_calls().empty() &&
                         out.tool_calls().rbegin()->index() == piece.index;
    if (goes_on) {
      out.mutable_tool_calls()->rbegin()->mutable_arguments()->append(piece.arguments);
      continue;
    }
    v1::ToolCallPiece& added = *out.add_tool_calls();
    added.set_index(piece.index);
    added.set_id(piece.id);
    added.set_name(piece.name);
    added.set_arguments(piece.arguments);
  }
  if (!in.text.empty()) out.mutable_text()->append(in.text);
  out.mutable_token_ids()->Add(in.ids.begin(), in.ids.end());
  for (const TokenLogprob& logprob : in.logprobs) ToProto(logprob, *out.add_logprobs());
}

void ToProto(const ChoiceEnd& in, v1::Done& out) {
  out.set_choice(in.choice);
  out.set_finish_reason(in.finish_reason);
  if (in.stop_string) {
    out.set_stop_reason(*in.stop_string);
  } else if (in.stop_token) {
    out.set_stop_reason(std::to_string(*in.stop_token));
  }
}

void ToProto(const Usage& in, v1::Usage& out) {
  out.set_prompt_tokens(in.prompt_tokens);
  out.set_completion_tokens(in.completion_tokens);
  out.set_cached_tokens(in.cached_tokens);
  out.set_reasoning_tokens(in.reasoning_tokens);
  out.set_accepted_prediction_tokens(in.accepted_prediction_tokens);
  out.set_rejected_prediction_tokens(in.rejected_prediction_tokens);
}

void ToProto(const ModelEntry& in, v1::ModelInfo& out) {
  out.set_name(in.name);
  out.set_model_id(in.model_id);
  out.set_max_model_len(in.max_model_len);
  out.set_workers_ready(in.workers_ready);
  out.set_tool_call_parser(std::string(in.tool_call_parser));
  out.set_reasoning_parser(std::string(in.reasoning_parser));
  out.set_parent(in.parent);
  out.set_adapter(in.adapter);
}

absl::Status ToStatus(const ApiError& error) {
  std::string message = error.message;
  if (!error.param.empty() && message.find(error.param) == std::string::npos) {
    message = error.param + ": " + message;
  }
  if (!error.reason.empty()) message = std::string(error.reason) + ": " + message;
  return absl::Status(CodeOf(error.code), message);
}

GrpcEnd EndOf(const ApiError& error) {
  absl::Status status = ToStatus(error);
  AddDetails({.field = error.param, .retry_after_ms = error.retry_after_ms}, status);
  return {std::move(status), error.retry_after_ms};
}

}  // namespace quire
