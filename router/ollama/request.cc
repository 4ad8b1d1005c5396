#include "router/ollama/request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/ascii.h"
#include "common/wire/sampling.h"
#include "router/chat/constraint_fields.h"
#include "router/chat/sampling_fields.h"
#include "router/chat/tool_fields.h"
#include "router/core/result.h"
#include "router/core/sampling_checks.h"
#include "router/ollama/answer.h"
#include "router/ollama/input.h"
#include "router/ollama/words.h"

namespace quire::ollama {
namespace {

using json::Value;

constexpr size_t kMaxUnknownFieldsListed = 16;
constexpr unsigned kInGenerate = 1, kInChat = 2, kInBoth = kInGenerate | kInChat;

// What is collected while the fields of one body are read.
struct Draft {
  Draft(AgentRequest& target, const RequestLimits& within) : out(target), limits(within) {
    out.stream = true;
  }
  void NoteUnknown(std::string name) {
    if (out.unknown_fields.size() >= kMaxUnknownFieldsListed) return;
    out.unknown_fields.push_back(name.substr(0, 64));
  }

  AgentRequest& out;
  const RequestLimits& limits;
  ConstraintDraft constraint;
  const Value* messages = nullptr;
  std::string prompt, system, tools_json;
  bool raw = false;
  bool logprobs = false;
  std::optional<int32_t> top_logprobs;
  std::optional<int32_t> repeat_last_n;
};

using V = const Value&;
using N = std::string_view;
using D = Draft&;

// --- options

FieldError ReadNumPredict(V value, N name, D draft) {
  std::optional<int32_t> count;
  if (auto problem = ReadInt(value, name, count)) return problem;
  if (*count < -2) {
    return InvalidField(name, "must be at least 1, or -1 for as much as the context holds");
  }
  if (*count > 0) draft.out.generate.sampling.max_tokens = count;
  return std::nullopt;
}

FieldError ReadSeed(V value, N name, D draft) {
  if (value.is_int64() && value.get_int64() == -1) return std::nullopt;  // as if there was none
  return ReadUint64(value, name, draft.out.generate.sampling.seed.emplace());
}

FieldError ReadRepeatLastN(V value, N name, D draft) {
  return ReadInt(value, name, draft.repeat_last_n);
}

FieldError OnlyNumber(V value, N name, double neutral) {
  std::optional<float> number;
  if (auto problem = ReadFloat(value, name, number)) return problem;
  if (static_cast<double>(*number) == neutral) return std::nullopt;
  return InvalidField(
      name, "is not served; leave it out, or send " + std::to_string(static_cast<int>(neutral)));
}
FieldError OnlyOne(V value, N name, Draft&) { return OnlyNumber(value, name, 1); }
FieldError OnlyZero(V value, N name, Draft&) { return OnlyNumber(value, name, 0); }

FieldError OnlyTrue(V value, N name, Draft&) {
  bool on = true;
  if (auto problem = ReadBool(value, name, on)) return problem;
  return on ? std::nullopt : FieldError(InvalidField(name, "is not served; leave it out"));
}

// How Ollama would load the model, or what mirostat, which is not served, would do.
FieldError NoEffect(V, N name, D draft) {
  draft.NoteUnknown(std::string(name));
  return std::nullopt;
}

struct Option {
  std::string_view name;
  std::string_view sampling;  // what the field is called here; empty: `read` reads it
  FieldError (*read)(V value, N name, D draft) = nullptr;
};

constexpr Option kOptions[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"repeat_penalty", "repetition_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"stop", "stop"},
    {"seed", "", ReadSeed},
    {"num_predict", "", ReadNumPredict},
    {"repeat_last_n", "", ReadRepeatLastN},
    {"tfs_z", "", OnlyOne},
    {"mirostat", "", OnlyZero},
    {"penalize_newline", "", OnlyTrue},
    {"mirostat_tau", "", NoEffect},
    {"mirostat_eta", "", NoEffect},
    {"num_ctx", "", NoEffect},
    {"num_batch", "", NoEffect},
    {"num_gpu", "", NoEffect},
    {"num_keep", "", NoEffect},
    {"num_thread", "", NoEffect},
    {"main_gpu", "", NoEffect},
    {"numa", "", NoEffect},
    {"low_vram", "", NoEffect},
    {"f16_kv", "", NoEffect},
    {"logits_all", "", NoEffect},
    {"vocab_only", "", NoEffect},
    {"use_mmap", "", NoEffect},
    {"use_mlock", "", NoEffect},
    {"embedding_only", "", NoEffect},
};

ApiError UnknownOption(std::string_view name) {
  std::string served;
  for (const Option& option : kOptions) {
    if (option.read == NoEffect) continue;
    served += (served.empty() ? "" : ", ") + std::string(option.name);
  }
  return InvalidField("options." + std::string(name.substr(0, 64)),
                      "is no option; there are " + served);
}

FieldError ReadOptions(V value, N name, D draft) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  for (const auto& member : **object) {
    const std::string_view key(member.key().data(), member.key().size());
    const auto* const option = std::find_if(std::begin(kOptions), std::end(kOptions),
                                            [&](const Option& one) { return one.name == key; });
    if (option == std::end(kOptions)) return UnknownOption(key);
    if (member.value().is_null()) continue;
    const std::string field = "options." + std::string(key);
    FieldError problem;
    if (option->read != nullptr) {
      problem = option->read(member.value(), field, draft);
    } else {
      problem = FindSamplingField(option->sampling)
                    ->read(member.value(), field, draft.out.generate.sampling);
    }
    if (problem) return problem;
  }
  return std::nullopt;
}

// --- fields

FieldError ReadFormatField(V value, N name, D draft) {
  if (value.is_object()) {
    return SetConstraint(ConstraintKind::kJsonSchema, json::Serialize(value), "format",
                         draft.constraint);
  }
  const std::string_view word =
      value.is_string() ? json::View(value.get_string()) : std::string_view("?");
  if (word.empty()) return std::nullopt;
  if (word != "json") return InvalidField(name, "must be \"json\" or a JSON schema, an object");
  return SetConstraint(ConstraintKind::kJsonObject, "", "format", draft.constraint);
}

FieldError ReadKeepAlive(V value, N name, D draft) {
  if (value.is_string()) {
    draft.out.keep_alive = ReadDuration(json::View(value.get_string()));
    if (draft.out.keep_alive) return std::nullopt;
    return InvalidField(name, "must be a duration such as \"5m\" or \"1h30m\", or seconds");
  }
  const absl::StatusOr<double> seconds = json::AsDouble(value, name);
  if (!seconds.ok()) return ErrorFromStatus(seconds.status(), name);
  draft.out.keep_alive = OfSeconds(*seconds);
  return std::nullopt;
}

FieldError ReadThink(V value, N name, D draft) {
  Thinking& thinking = draft.out.generate.thinking;
  if (value.is_bool()) {
    thinking.enabled = value.get_bool();
    return std::nullopt;
  }
  const std::string_view word =
      value.is_string() ? json::View(value.get_string()) : std::string_view();
  if (word != "low" && word != "medium" && word != "high") {
    return InvalidField(name, "must be true, false, \"low\", \"medium\" or \"high\"");
  }
  thinking.enabled = true;
  thinking.effort = std::string(word);
  return std::nullopt;
}

FieldError ReadToolList(V value, N name, D draft) {
  return ReadTools(value, name, draft.limits, draft.tools_json);
}

bool IsNothing(V value) {
  return (value.is_string() && value.get_string().empty()) ||
         (value.is_array() && value.get_array().empty());
}

FieldError OnlyEmpty(V value, N name, Draft&) {
  if (IsNothing(value)) return std::nullopt;
  return InvalidField(name, name == "context"
                                ? "is not served; send the conversation to /api/chat"
                                : "is not served: a prompt is continued at its end; leave it out");
}

FieldError OnlyModelsTemplate(V value, N name, Draft&) {
  if (IsNothing(value)) return std::nullopt;
  return InvalidField(name,
                      "is not served: a model has its own; send the whole prompt with raw: true");
}

FieldError NoImages(V value, N name, Draft&) { return RefuseImages(value, name); }

FieldError Ignore(V, N, Draft&) { return std::nullopt; }

struct Field {
  std::string_view name;
  unsigned where;
  FieldError (*read)(V value, N name, D draft);
};

constexpr Field kFields[] = {
    {"model", kInBoth, [](V v, N n, D d) { return ReadName(v, n, d.out.generate.model); }},
    {"prompt", kInGenerate, [](V v, N n, D d) { return ReadString(v, n, d.prompt); }},
    {"system", kInGenerate, [](V v, N n, D d) { return ReadString(v, n, d.system); }},
    {"raw", kInGenerate, [](V v, N n, D d) { return ReadBool(v, n, d.raw); }},
    {"messages", kInChat,
     [](V v, N, D d) -> FieldError {
       d.messages = &v;
       return {};
     }},
    {"tools", kInChat, ReadToolList},
    {"stream", kInBoth, [](V v, N n, D d) { return ReadBool(v, n, d.out.stream); }},
    {"format", kInBoth, ReadFormatField},
    {"options", kInBoth, ReadOptions},
    {"think", kInBoth, ReadThink},
    {"keep_alive", kInBoth, ReadKeepAlive},
    {"logprobs", kInBoth, [](V v, N n, D d) { return ReadBool(v, n, d.logprobs); }},
    {"top_logprobs", kInBoth, [](V v, N n, D d) { return ReadInt(v, n, d.top_logprobs); }},
    {"suffix", kInGenerate, OnlyEmpty},
    {"context", kInGenerate, OnlyEmpty},
    {"template", kInGenerate, OnlyModelsTemplate},
    {"images", kInGenerate, NoImages},
    {"truncate", kInBoth, Ignore},
    {"shift", kInBoth, Ignore},
};

FieldError ReadFields(Kind kind, const json::Object& object, Draft& draft) {
  const unsigned where = kind == Kind::kChat ? kInChat : kInGenerate;
  for (const auto& member : object) {
    const std::string_view name(member.key().data(), member.key().size());
    const auto* const field = std::find_if(
        std::begin(kFields), std::end(kFields),
        [&](const Field& one) { return one.name == name && (one.where & where) != 0; });
    if (field == std::end(kFields)) {
      draft.NoteUnknown(std::string(name.substr(0, 64)));
      continue;
    }
    if (member.value().is_null()) continue;
    if (auto problem = field->read(member.value(), name, draft)) return problem;
  }
  return std::nullopt;
}

// Penalties are about the whole context here, as with a repeat_last_n of -1.
FieldError SettlePenalty(Draft& draft) {
  SamplingOptions& sampling = draft.out.generate.sampling;
  if (!draft.repeat_last_n || *draft.repeat_last_n == -1) return std::nullopt;
  if (*draft.repeat_last_n == 0) {
    sampling.repetition_penalty = 1.0f;
    sampling.presence_penalty = sampling.frequency_penalty = 0.0f;
    return std::nullopt;
  }
  const bool counts = sampling.repetition_penalty.value_or(1) != 1 ||
                      sampling.presence_penalty.value_or(0) != 0 ||
                      sampling.frequency_penalty.value_or(0) != 0;
  if (!counts) return std::nullopt;
  return InvalidField("options.repeat_last_n",
                      "is served as -1, the whole context, or as 0, which turns penalties off");
}

FieldError SettleSampling(Kind kind, Draft& draft) {
  SamplingOptions& sampling = draft.out.generate.sampling;
  sampling.max_tokens_at_most = true;
  sampling.max_tokens_field = "options.num_predict";
  if (auto problem = SettlePenalty(draft)) return problem;
  const int32_t most = draft.top_logprobs.value_or(0);
  if (most < 0 || most > kMaxLogprobs) return InvalidField("top_logprobs", "must be in [0, 20]");
  if (most > 0 && !draft.logprobs) {
    return InvalidField("top_logprobs", "needs logprobs to be true");
  }
  if (draft.logprobs) sampling.logprobs = most;
  auto problem = CheckSampling(sampling);
  return problem ? FieldError(InClientsWords(kind, *std::move(problem))) : std::nullopt;
}

FieldError SettleChat(json::Object& body, Draft& draft) {
  GenerateRequest& generate = draft.out.generate;
  const bool empty = draft.messages == nullptr ||
                     (draft.messages->is_array() && draft.messages->get_array().empty());
  draft.out.only_load = empty;
  if (empty) return std::nullopt;
  ChatPrompt chat;
  if (auto problem = ReadTurns(body.at("messages"), draft.limits, chat.messages_json)) {
    return problem;
  }
  chat.tools_json = std::move(draft.tools_json);
  generate.prompt = std::move(chat);
  return std::nullopt;
}

void SettlePrompt(Draft& draft) {
  GenerateRequest& generate = draft.out.generate;
  draft.out.only_load = draft.prompt.empty();
  if (draft.raw) {
    generate.read_answer = false;
    generate.prompt = TextPrompt{std::move(draft.prompt)};
    return;
  }
  ChatPrompt chat;
  chat.messages_json = "[";
  if (!draft.system.empty()) {
    chat.messages_json += "{\"role\":\"system\",\"content\":";
    json::AppendQuoted(draft.system, chat.messages_json);
    chat.messages_json += "},";
  }
  chat.messages_json += "{\"role\":\"user\",\"content\":";
  json::AppendQuoted(draft.prompt, chat.messages_json);
  chat.messages_json += "}]";
  if (draft.system.empty()) chat.without_template = std::move(draft.prompt);
  generate.prompt = std::move(chat);
}

// "hf:a/b" and "hf.co/a/b" without their beginning; other names as they are.
std::string_view WithoutHub(std::string_view name) {
  for (const std::string_view hub : {"hf:", "hf.co/"}) {
    if (name.starts_with(hub)) return name.substr(hub.size());
  }
  return name;
}

}  // namespace

std::optional<ApiError> ReadRequest(Kind kind, std::string_view body, const RequestLimits& limits,
                                    AgentRequest& out) {
  out = AgentRequest();
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  // The messages, with thoughts under three names, are made before the body is released.
  if (auto problem = ChargeMore(limits, 3 * body.size())) return problem;
  Draft draft(out, limits);
  if (auto problem = ReadFields(kind, root.get_object(), draft)) return problem;
  GenerateRequest& generate = out.generate;
  if (generate.model.empty()) return InvalidField("model", "is missing; /api/tags has the names");
  if (auto problem = SettleSampling(kind, draft)) return problem;
  if (auto p = SettleConstraint(std::move(draft.constraint), generate)) return p;
  generate.read_answer = true;
  generate.chat_defaults = true;
  generate.streaming = out.stream;
  if (kind == Kind::kChat) {
    if (auto problem = SettleChat(root.get_object(), draft)) return problem;
  } else {
    SettlePrompt(draft);
  }
  if (auto problem = CheckLimits(generate, limits)) return InClientsWords(kind, *problem);
  out.answer = std::make_unique<Answer>(kind, generate.model, generate.sampling.logprobs);
  return std::nullopt;
}

ApiError InClientsWords(Kind kind, ApiError error) {
  std::string field;
  if (kind == Kind::kGenerate && error.param == ChatPrompt::field) field = "prompt";
  if (error.param == "max_tokens") field = "options.num_predict";
  for (const Option& option : kOptions) {
    if (!option.sampling.empty() && option.sampling == error.param) {
      field = "options." + std::string(option.name);
    }
  }
  if (field.empty()) return error;
  if (error.message.starts_with(error.param + ":")) {
    error.message.replace(0, error.param.size(), field);
  }
  error.param = std::move(field);
  return error;
}

std::optional<ApiError> ReadModelName(std::string_view body, std::string& out, bool* stream) {
  json::Limits limits;
  limits.max_bytes = kMaxSmallBodyBytes;
  const absl::StatusOr<Value> value = json::Parse(body, limits);
  if (!value.ok() || !value->is_object()) {
    return ApiError{ApiCode::kInvalidArgument,
                    "the body must be a JSON object with a model" +
                        (value.ok() ? "" : ": " + StatusMessage(value.status())),
                    "", 0};
  }
  const json::Object& object = value->get_object();
  const Value* streams = stream == nullptr ? nullptr : json::Find(object, "stream");
  if (streams != nullptr && !streams->is_null()) {
    if (auto problem = ReadBool(*streams, "stream", *stream)) return problem;
  }
  for (const std::string_view field : {"model", "name"}) {
    const Value* name = json::Find(object, field);
    if (name == nullptr || name->is_null()) continue;
    if (auto problem = ReadName(*name, field, out)) return problem;
    if (!out.empty()) return std::nullopt;
  }
  return InvalidField("model", "is missing; /api/tags has the names");
}

std::optional<ApiError> CheckPullName(std::string_view name) {
  const auto plain = [](std::string_view text, std::string_view marks) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             marks.find(c) != std::string_view::npos;
    });
  };
  const std::string_view rest = WithoutHub(name);
  const bool of_hub = rest.size() < name.size();
  const bool first_is_plain = plain(rest.substr(0, 1), "");
  const bool fits = name.size() <= kMaxPullNameBytes && rest.find("..") == std::string_view::npos &&
                    first_is_plain && plain(rest, of_hub ? "-_.:/+" : "-_.:");
  if (fits) return std::nullopt;
  return InvalidField("model",
                      "may be a short name, which `quire pull` lists, or hf:ORG/REPO; other places "
                      "are for `quire pull` on the machine itself");
}

std::vector<std::string> ServedNamesOf(std::string_view name) {
  std::vector<std::string> names = {std::string(name)};
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) names.emplace_back(name.substr(0, name.size() - kLatest.size()));
  const std::string_view rest = WithoutHub(name);
  if (rest.size() == name.size()) return names;
  constexpr std::string_view kFile = ".gguf";
  if (EndsWithIgnoringCase(rest, kFile)) {
    const std::string_view file = rest.substr(rest.rfind('/') + 1);
    names.emplace_back(file.substr(0, file.size() - kFile.size()));
  } else {
    names.emplace_back(rest.substr(0, rest.find(':')));
  }
  return names;
}

}  // namespace quire::ollama
