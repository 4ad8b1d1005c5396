#include "router/responses/request.h"

#include <algorithm>
#include <utility>

#include "router/chat/constraint_fields.h"
#include "router/chat/conversation.h"
#include "router/chat/sampling_fields.h"
#include "router/chat/tool_fields.h"
#include "router/core/result.h"
#include "router/core/sampling_checks.h"
#include "router/responses/answer.h"
#include "router/responses/input.h"
#include "router/responses/tools.h"

namespace quire::responses {
namespace {

using json::Value;

constexpr size_t kMaxUnknownFieldsListed = 16;
// Of the members that an answer repeats and no prompt holds: instructions and tools that the model
// is shown are bounded like the prompt.
constexpr size_t kMaxRepeatedBytes = 256u << 10;
// The error as clients of OpenAI know it.
constexpr std::string_view kPreviousResponseNotFound = "previous_response_not_found";

// What is collected while the fields of one body are read.
struct Draft {
  Draft(AgentRequest& target, const RequestLimits& within) : out(target), limits(within) {}

  AgentRequest& out;
  const RequestLimits& limits;
  size_t body_bytes = 0;
  ConstraintDraft constraint;
  const Value* input = nullptr;
  const Value* tools = nullptr;
  const Value* tool_choice = nullptr;
  std::string instructions;
  std::string previous_id;
  bool store = true;
  bool logprobs = false;  // include has them
  std::optional<int32_t> top_logprobs;
  Asked asked;
};

using V = const Value&;
using N = std::string_view;
using D = Draft&;

FieldError ReadText(V value, N name, D draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  constexpr FormatNames kNames{"text.format", "text.format.schema", "text.format.schema",
                               "text.format.value"};
  if (const Value* format = json::Find(**object, "format")) {
    return ReadFormat(*format, kNames, draft.limits, draft.constraint);
  }
  return std::nullopt;
}

FieldError ReadReasoning(V value, N name, D draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  Thinking& thinking = draft.out.generate.thinking;
  if (const Value* effort = json::Find(**object, "effort")) {
    if (auto problem = ReadName(*effort, "reasoning.effort", thinking.effort)) return problem;
  }
  if (thinking.effort == "none") thinking.enabled = false;
  return std::nullopt;
}

// Not OpenAI's: vLLM has it in its chats.
FieldError ReadThinkingBudget(V value, N, D draft) {
  return ReadBudget(value, "thinking_token_budget", draft.out.generate.thinking);
}

FieldError ReadInclude(V value, N name, D draft) {
  std::vector<std::string> parts;
  if (auto problem = ReadStrings(value, name, parts)) return problem;
  for (const std::string& part : parts) {
    if (part == "reasoning.encrypted_content") draft.asked.pack_thoughts = true;
    if (part == "message.output_text.logprobs") draft.logprobs = true;
  }
  return std::nullopt;
}

FieldError NoPreviousResponse(const std::string& id, const Keeping& keeping) {
  constexpr std::string_view kField = "previous_response_id";
  std::string message =
      std::string(kField) + ": the response \"" + id.substr(0, 128) + "\" is not found: ";
  message += keeping.store != nullptr ? "it was never kept, was deleted or gave way to newer ones"
                                      : "no responses are kept here (--responses-store)";
  message += "; send the whole conversation as input";
  return ApiError{ApiCode::kInvalidArgument, message, std::string(kField), 0,
                  kPreviousResponseNotFound};
}

FieldError ReadTruncation(V value, N name, Draft&) {
  const std::string_view word =
      value.is_string() ? json::View(value.get_string()) : std::string_view();
  if (word == "auto" || word == "disabled") return std::nullopt;
  return InvalidField(name, "must be \"auto\" or \"disabled\"");
}

FieldError ReadSamplingField(V value, N name, D draft) {
  return FindSamplingField(name)->read(value, name, draft.out.generate.sampling);
}

FieldError ReadPriority(V value, N name, D draft) {
  std::optional<int32_t> priority;
  FieldError problem = ReadInt(value, name, priority);
  if (!problem) draft.out.generate.priority = *priority;
  return problem;
}

FieldError Ignore(V, N, Draft&) { return std::nullopt; }

FieldError OnlyFalse(V value, N name, Draft&) {
  if (value.is_bool() && !value.get_bool()) return std::nullopt;
  return InvalidField(name, "is not served; only false is accepted");
}

FieldError OnlyEmpty(V value, N name, Draft&) {
  const bool empty = (value.is_string() && value.get_string().empty()) ||
                     (value.is_array() && value.get_array().empty()) ||
                     (value.is_object() && value.get_object().empty());
  if (empty) return std::nullopt;
  return InvalidField(name, "is not served; leave it out");
}

struct Field {
  std::string_view name;
  FieldError (*read)(V value, N name, D draft);
};

constexpr Field kFields[] = {
    {"model", [](V v, N n, D d) { return ReadName(v, n, d.out.generate.model); }},
    {"input",
     [](V v, N, D d) -> FieldError {
       d.input = &v;
       return {};
     }},
    {"instructions", [](V v, N n, D d) { return ReadString(v, n, d.instructions); }},
    {"tools",
     [](V v, N, D d) -> FieldError {
       d.tools = &v;
       return {};
     }},
    {"thinking_token_budget", ReadThinkingBudget},
    {"tool_choice",
     [](V v, N, D d) -> FieldError {
       d.tool_choice = &v;
       return {};
     }},
    {"parallel_tool_calls",
     [](V v, N n, D d) { return ReadBool(v, n, d.out.generate.tool_use.parallel); }},
    {"text", ReadText},
    {"reasoning", ReadReasoning},
    {"include", ReadInclude},
    {"max_output_tokens",
     [](V v, N n, D d) { return ReadInt(v, n, d.out.generate.sampling.max_tokens); }},
    {"top_logprobs", [](V v, N n, D d) { return ReadInt(v, n, d.top_logprobs); }},
    {"stream", [](V v, N n, D d) { return ReadBool(v, n, d.out.stream); }},
    {"prompt_cache_key", [](V v, N n, D d) { return ReadName(v, n, d.out.session); }},
    {"previous_response_id", [](V v, N n, D d) { return ReadName(v, n, d.previous_id); }},
    {"truncation", ReadTruncation},
    {"temperature", ReadSamplingField},
    {"top_p", ReadSamplingField},
    {"top_k", ReadSamplingField},
    {"min_p", ReadSamplingField},
    {"seed", ReadSamplingField},
    {"stop", ReadSamplingField},
    {"presence_penalty", ReadSamplingField},
    {"frequency_penalty", ReadSamplingField},
    {"repetition_penalty", ReadSamplingField},
    {"logit_bias", ReadSamplingField},
    {"ignore_eos", ReadSamplingField},
    {"priority", ReadPriority},
    {"store", [](V v, N n, D d) { return ReadBool(v, n, d.store); }},
    {"metadata", Ignore},
    {"client_metadata", Ignore},
    {"service_tier", Ignore},
    {"user", Ignore},
    {"safety_identifier", Ignore},
    {"prompt_cache_retention", Ignore},
    {"prompt_cache_options", Ignore},
    {"stream_options", Ignore},
    {"max_tool_calls", Ignore},
    {"background", OnlyFalse},
    {"conversation", OnlyEmpty},
    {"prompt", OnlyEmpty},
    {"context_management", OnlyEmpty},
};

FieldError ReadFields(const json::Object& object, Draft& draft) {
  for (const auto& member : object) {
    const std::string_view name(member.key().data(), member.key().size());
    const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                     [&](const Field& one) { return one.name == name; });
    if (field == std::end(kFields)) {
      if (draft.out.unknown_fields.size() < kMaxUnknownFieldsListed) {
        draft.out.unknown_fields.emplace_back(name.substr(0, 64));
      }
      continue;
    }
    if (member.value().is_null()) continue;
    if (auto problem = field->read(member.value(), name, draft)) return problem;
  }
  return std::nullopt;
}

FieldError SettleTools(Draft& draft, ChatPrompt& chat) {
  ToolSet tools;
  if (draft.tools != nullptr) {
    if (auto problem = ReadTools(*draft.tools, tools)) return problem;
    if (auto p = CheckToolCount(tools.names.size(), "tools", draft.limits)) return p;
  }
  if (draft.tool_choice != nullptr) {
    // What it keeps of the tools is read again.
    const size_t tree = json::Measure(tools.json).tree_bytes;
    if (auto problem = ChargeMore(draft.limits, tree)) return problem;
    if (auto problem = ReadToolChoice(*draft.tool_choice, tools, draft.out.generate.tool_use)) {
      return problem;
    }
  }
  chat.tools_json = std::move(tools.json);
  draft.out.tools_left_out = tools.left_out;
  draft.asked.names = std::move(tools.names);
  return std::nullopt;
}

FieldError SettleSampling(Draft& draft) {
  SamplingOptions& sampling = draft.out.generate.sampling;
  sampling.max_tokens_field = "max_output_tokens";
  sampling.max_tokens_at_most = true;
  if (sampling.max_tokens && *sampling.max_tokens < 1) {
    return InvalidField("max_output_tokens", "must be at least 1");
  }
  if (draft.top_logprobs) {
    if (*draft.top_logprobs < 0 || *draft.top_logprobs > kMaxLogprobs) {
      return InvalidField("top_logprobs", "must be in [0, " + std::to_string(kMaxLogprobs) + "]");
    }
  }
  if (draft.logprobs || draft.top_logprobs.value_or(0) > 0) {
    sampling.logprobs = draft.top_logprobs.value_or(0);
  }
  return CheckSampling(sampling);
}

// The members that a response repeats, in the words of the request, with OpenAI's defaults; null
// where the model's own default is in force.
FieldError ReadEcho(const json::Object& body, const Draft& draft, size_t shown_tools_bytes,
                    std::string& out) {
  const struct {
    std::string_view name;
    std::string_view otherwise;
  } members[] = {{"instructions", "null"},
                 {"max_output_tokens", "null"},
                 {"max_tool_calls", "null"},
                 {"metadata", "{}"},
                 {"parallel_tool_calls", "true"},
                 {"prompt_cache_key", "null"},
                 {"reasoning", "{\"effort\":null,\"summary\":null}"},
                 {"safety_identifier", "null"},
                 {"temperature", "null"},
                 {"text", "{\"format\":{\"type\":\"text\"}}"},
                 {"tool_choice", "\"auto\""},
                 {"tools", "[]"},
                 {"top_p", "null"},
                 {"user", "null"}};
  out = ",\"previous_response_id\":";
  if (draft.previous_id.empty()) {
    out += "null";
  } else {
    json::AppendQuoted(draft.previous_id, out);
  }
  out += ",\"store\":";
  out += draft.asked.keeping.store != nullptr ? "true" : "false";
  // Nothing is cut away, and all requests are served alike.
  out += ",\"service_tier\":\"default\",\"truncation\":\"disabled\",\"top_logprobs\":" +
         std::to_string(draft.top_logprobs.value_or(0));
  size_t repeated = 0, most = 0;
  std::string_view longest;
  for (const auto& member : members) {
    out += ",\"";
    out += member.name;
    out += "\":";
    const Value* value = json::Find(body, member.name);
    const std::string text =
        value != nullptr ? json::Serialize(*value) : std::string(member.otherwise);
    size_t in_prompt = 0;
    if (member.name == "instructions") in_prompt = text.size();
    if (member.name == "tools") in_prompt = std::min(text.size(), shown_tools_bytes);
    const size_t beside = text.size() - in_prompt;
    repeated += beside;
    if (beside > most) {
      most = beside;
      longest = member.name;
    }
    out += text;
  }
  if (repeated <= kMaxRepeatedBytes) return std::nullopt;
  return InvalidField(longest,
                      "is too long: an answer repeats metadata, text, tool_choice, tools "
                      "that the model is not shown and the like, together at most " +
                          std::to_string(kMaxRepeatedBytes) + " bytes");
}

// The conversation that a request continues. Its instructions are not among its items.
FieldError ReadPrevious(const Draft& draft, const KeptResponse& previous, KeptItems& kept,
                        Conversation& out) {
  constexpr std::string_view kField = "previous_response_id";
  const Turn& turn = previous.turn;
  // Its text once, and its messages with thoughts under three names.
  const size_t bytes = turn.items.size() + turn.output.size();
  if (auto problem = ChargeMore(draft.limits, 5 * bytes)) return problem;
  out.AddCharged(3 * bytes);
  const std::string_view comma = turn.items.empty() || turn.output.empty() ? "" : ",";
  const std::string text = "[" + turn.items + std::string(comma) + turn.output + "]";
  const auto items = ReadJson(text, draft.limits);
  if (absl::IsUnavailable(items.status())) return TooManyLargeRequests();
  if (!items.ok()) return InvalidField(kField, StatusMessage(items.status()));
  FieldError problem = ReadInput(*items, draft.limits, kept, out);
  if (problem) problem->param = kField;
  return problem;
}

// The items of the input, after those of the conversation that it continues.
FieldError ReadConversation(Draft& draft, const Keeping& keeping, ChatPrompt& chat) {
  Conversation conversation(3 * draft.body_bytes);
  conversation.Instruct(draft.instructions);
  KeptItems kept(keeping, draft.limits);
  std::shared_ptr<const KeptResponse> previous;
  size_t count = CountItems(*draft.input);
  if (!draft.previous_id.empty()) {
    previous = keeping.Find(draft.previous_id);
    if (previous == nullptr) return NoPreviousResponse(draft.previous_id, keeping);
    count += previous->turn.item_count;
    if (count > draft.limits.max_messages) {
      return PastLimit("input", "--max-messages", draft.limits.max_messages,
                       draft.limits.counters ? &draft.limits.counters->messages : nullptr);
    }
    if (auto problem = ReadPrevious(draft, *previous, kept, conversation)) return problem;
  }
  if (auto problem = ReadInput(*draft.input, draft.limits, kept, conversation)) return problem;
  chat.messages_json = conversation.TakeJson();
  if (!draft.store || keeping.store == nullptr) return std::nullopt;
  Asked& asked = draft.asked;
  asked.keeping = keeping;
  asked.item_count = count;
  if (previous != nullptr) {
    const Turn& turn = previous->turn;
    if (auto problem = ChargeMore(draft.limits, turn.items.size() + turn.output.size())) {
      return problem;
    }
    asked.items = turn.items + (turn.items.empty() || turn.output.empty() ? "" : ",") + turn.output;
    if (!asked.items.empty()) asked.items += ',';
  }
  // Each item gets an id and a type where it has none.
  constexpr size_t kBytesPerItem = 64;
  const size_t own = draft.body_bytes + kBytesPerItem * CountItems(*draft.input);
  if (auto problem = ChargeMore(draft.limits, own)) return problem;
  asked.items += ItemsOf(*draft.input, kept, count - CountItems(*draft.input));
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ReadRequest(std::string_view body, const RequestLimits& limits,
                                    const Keeping& keeping, AgentRequest& out) {
  out = AgentRequest();
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  // The messages, with thoughts under three names, and what the answer repeats are made before the
  // body is released.
  if (auto problem = ChargeMore(limits, 4 * body.size())) return problem;
  Draft draft(out, limits);
  draft.body_bytes = body.size();
  if (auto problem = ReadFields(root.get_object(), draft)) return problem;
  if (draft.input == nullptr) return InvalidField("input", "is missing");
  if (auto problem = SettleSampling(draft)) return problem;
  if (auto p = SettleConstraint(std::move(draft.constraint), out.generate)) return p;
  ChatPrompt chat;
  if (auto problem = SettleTools(draft, chat)) return problem;
  if (auto problem = ReadConversation(draft, keeping, chat)) return problem;
  if (auto p = ReadEcho(root.get_object(), draft, chat.tools_json.size(), draft.asked.echo)) {
    return p;
  }
  GenerateRequest& generate = out.generate;
  generate.prompt = std::move(chat);
  generate.read_answer = true;
  generate.chat_defaults = true;
  generate.streaming = out.stream;
  if (auto problem = CheckLimits(generate, limits)) return InClientsWords(*std::move(problem));
  out.answer = std::make_unique<Answer>(std::move(draft.asked));
  return std::nullopt;
}

ApiError InClientsWords(ApiError error) {
  constexpr std::string_view kOurs = ChatPrompt::field;
  if (error.param != kOurs) return error;
  error.param = "input";
  if (error.message.starts_with("messages: ")) error.message.replace(0, kOurs.size(), "input");
  return error;
}

}  // namespace quire::responses
