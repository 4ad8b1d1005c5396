#include "router/messages/request.h"

#include <algorithm>
#include <utility>

#include "router/chat/constraint_fields.h"
#include "router/chat/conversation.h"
#include "router/chat/sampling_fields.h"
#include "router/chat/tool_fields.h"
#include "router/core/result.h"
#include "router/core/sampling_checks.h"
#include "router/messages/answer.h"
#include "router/messages/input.h"

namespace quire::messages {
namespace {

using json::Value;

constexpr size_t kMaxUnknownFieldsListed = 16;

// What is collected while the fields of one body are read.
struct Draft {
  Draft(AgentRequest& target, const RequestLimits& within, size_t charged_bytes)
      : out(target), limits(within), charged(charged_bytes) {}

  AgentRequest& out;
  const RequestLimits& limits;
  const size_t charged;  // for the messages
  ConstraintDraft constraint;
  const Value* system = nullptr;
  const Value* messages = nullptr;
  const Value* tools = nullptr;
  const Value* tool_choice = nullptr;
  Asked asked;
};

using V = const Value&;
using N = std::string_view;
using D = Draft&;

FieldError ReadThinking(V value, N name, D draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  Thinking& thinking = draft.out.generate.thinking;
  const std::string_view type = TextMember(**object, "type");
  draft.asked.omit_thoughts = TextMember(**object, "display") == "omitted";
  if (type == "disabled") {
    thinking.enabled = false;
    return std::nullopt;
  }
  if (type == "adaptive") return std::nullopt;  // the model decides
  if (type != "enabled") {
    return InvalidField("thinking.type", "must be \"enabled\", \"disabled\" or \"adaptive\"");
  }
  thinking.enabled = true;
  const Value* budget = json::Find(**object, "budget_tokens");
  if (budget == nullptr) return InvalidField("thinking.budget_tokens", "is missing");
  if (auto problem = ReadBudget(*budget, "thinking.budget_tokens", thinking)) return problem;
  if (*thinking.budget < 1) return InvalidField("thinking.budget_tokens", "must be at least 1");
  thinking.budget_firm = false;  // clients send it to any model
  return std::nullopt;
}

// Templates know three efforts, and the highest is what more than it means.
FieldError ReadOutputConfig(V value, N name, D draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  if (const Value* effort = json::Find(**object, "effort")) {
    std::string& word = draft.out.generate.thinking.effort;
    if (auto problem = ReadName(*effort, "output_config.effort", word)) return problem;
    if (word == "xhigh" || word == "max") word = "high";
    if (word != "low" && word != "medium" && word != "high") {
      return InvalidField("output_config.effort",
                          "must be \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
    }
  }
  constexpr FormatNames kNames{"output_config.format", "output_config.format.schema",
                               "output_config.format.schema", "output_config.format.value"};
  if (const Value* format = json::Find(**object, "format")) {
    return ReadFormat(*format, kNames, draft.limits, draft.constraint);
  }
  return std::nullopt;
}

FieldError ReadMetadata(V value, N name, D draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  const Value* user = json::Find(**object, "user_id");
  if (user == nullptr) return std::nullopt;
  return ReadName(*user, "metadata.user_id", draft.out.session);
}

FieldError ReadStop(V value, N name, D draft) {
  if (!value.is_array()) return InvalidField(name, "must be a list of strings");
  return ReadStrings(value, name, draft.out.generate.sampling.stop);
}

FieldError ReadSamplingField(V value, N name, D draft) {
  return FindSamplingField(name)->read(value, name, draft.out.generate.sampling);
}

FieldError Ignore(V, N, Draft&) { return std::nullopt; }

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
    {"messages",
     [](V v, N, D d) -> FieldError {
       d.messages = &v;
       return {};
     }},
    {"max_tokens", [](V v, N n, D d) { return ReadInt(v, n, d.out.generate.sampling.max_tokens); }},
    {"system",
     [](V v, N, D d) -> FieldError {
       d.system = &v;
       return {};
     }},
    {"tools",
     [](V v, N, D d) -> FieldError {
       d.tools = &v;
       return {};
     }},
    {"tool_choice",
     [](V v, N, D d) -> FieldError {
       d.tool_choice = &v;
       return {};
     }},
    {"stop_sequences", ReadStop},
    {"stream", [](V v, N n, D d) { return ReadBool(v, n, d.out.stream); }},
    {"thinking", ReadThinking},
    {"output_config", ReadOutputConfig},
    {"metadata", ReadMetadata},
    {"temperature", ReadSamplingField},
    {"top_p", ReadSamplingField},
    {"top_k", ReadSamplingField},
    {"seed", ReadSamplingField},
    {"ignore_eos", ReadSamplingField},
    {"cache_control", Ignore},
    {"context_management", Ignore},
    {"service_tier", Ignore},
    {"inference_geo", Ignore},
    {"speed", Ignore},
    {"diagnostics", Ignore},
    {"user_profile_id", Ignore},
    {"workspace_id", Ignore},
    {"betas", Ignore},
    {"container", OnlyEmpty},
    {"mcp_servers", OnlyEmpty},
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

FieldError SettleSampling(Purpose purpose, Draft& draft) {
  SamplingOptions& sampling = draft.out.generate.sampling;
  if (purpose == Purpose::kAnswer && !sampling.max_tokens) {
    return InvalidField("max_tokens", "is missing");
  }
  if (sampling.max_tokens && *sampling.max_tokens < 1) {
    return InvalidField("max_tokens", "must be at least 1");
  }
  sampling.max_tokens_at_most = true;
  draft.asked.max_tokens = static_cast<uint32_t>(sampling.max_tokens.value_or(0));
  return CheckSampling(sampling);
}

FieldError SettlePrompt(Draft& draft) {
  Conversation conversation(draft.charged);
  if (draft.system != nullptr) {
    if (auto problem = ReadSystem(*draft.system, conversation)) return problem;
  }
  Names referred;
  if (draft.messages == nullptr) return InvalidField("messages", "is missing");
  if (auto p = ReadMessages(*draft.messages, draft.limits, conversation, referred)) return p;
  ToolSet tools;
  if (draft.tools != nullptr) {
    if (auto problem = ReadTools(*draft.tools, referred, tools)) return problem;
    if (auto p = CheckToolCount(tools.names.size(), "tools", draft.limits)) return p;
  }
  if (draft.tool_choice != nullptr) {
    if (auto p = ReadToolChoice(*draft.tool_choice, tools, draft.out.generate.tool_use)) return p;
  }
  draft.out.tools_left_out = tools.left_out.size();
  ChatPrompt chat;
  chat.messages_json = conversation.TakeJson();
  chat.tools_json = std::move(tools.json);
  draft.out.generate.prompt = std::move(chat);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ReadRequest(std::string_view body, Purpose purpose,
                                    const RequestLimits& limits, AgentRequest& out) {
  out = AgentRequest();
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  // The messages, with thoughts under three names, are made before the body is released.
  const size_t charged = 3 * body.size();
  if (auto problem = ChargeMore(limits, charged)) return problem;
  Draft draft(out, limits, charged);
  if (auto problem = ReadFields(root.get_object(), draft)) return problem;
  if (auto problem = SettleSampling(purpose, draft)) return problem;
  if (auto p = SettleConstraint(std::move(draft.constraint), out.generate)) return p;
  if (auto problem = SettlePrompt(draft)) return problem;
  GenerateRequest& generate = out.generate;
  generate.read_answer = true;
  generate.chat_defaults = true;
  generate.streaming = out.stream;
  if (auto problem = CheckLimits(generate, limits)) return problem;
  out.answer = std::make_unique<Answer>(draft.asked);
  return std::nullopt;
}

}  // namespace quire::messages
