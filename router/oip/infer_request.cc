#include "router/oip/infer_request.h"

#include <algorithm>
#include <utility>

#include "common/utf8.h"
#include "router/chat/sampling_fields.h"
#include "router/core/sampling_checks.h"

namespace quire::oip {
namespace {

using json::Value;
using Problem = std::optional<ApiError>;

constexpr uint64_t kMaxTimeoutMs = 86'400'000;

std::string Quoted(std::string_view name) { return "\"" + ValidUtf8(name.substr(0, 64)) + "\""; }

// --- inputs

struct Draft {
  const RequestLimits& limits;
  InferRequest& out;
  bool has_prompt = false;
  std::optional<bool> stream = std::nullopt;
};

Problem ReadText(const InputTensor& tensor, Draft& draft) {
  const Result<std::string_view> text = OneString(tensor);
  if (!text.ok()) return text.error();
  if (text.value().empty()) {
    return InvalidField(tensor.name, "must not be empty; give at least one character");
  }
  if (!IsValidUtf8(text.value())) return InvalidField(tensor.name, "must be UTF-8");
  if (draft.has_prompt) return InvalidField(tensor.name, "give text_input or input_ids, not both");
  draft.has_prompt = true;
  draft.out.generate.prompt = TextPrompt{std::string(text.value()), true, "text_input"};
  return std::nullopt;
}

Problem ReadIds(const InputTensor& tensor, Draft& draft) {
  Result<std::vector<TokenId>> ids = TokenIds(tensor);
  if (!ids.ok()) return ids.error();
  if (draft.has_prompt) return InvalidField(tensor.name, "give text_input or input_ids, not both");
  draft.has_prompt = true;
  draft.out.generate.prompt = TokenPrompt{std::move(ids.value()), "input_ids"};
  return std::nullopt;
}

Problem ReadSamplingTensor(const InputTensor& tensor, Draft& draft) {
  const Result<std::string_view> text = OneString(tensor);
  if (!text.ok()) return text.error();
  if (text.value().empty()) return std::nullopt;
  const auto value = ReadJson(text.value(), draft.limits);
  if (absl::IsUnavailable(value.status())) return TooManyLargeRequests();
  if (!value.ok()) return InvalidField(tensor.name, StatusMessage(value.status()));
  if (!value->is_object()) return InvalidField(tensor.name, "must hold a JSON object");
  return ReadSamplingKeys(value->get_object(), draft.limits, draft.out);
}

template <class Set>
Problem ReadFlag(const InputTensor& tensor, Set set) {
  const Result<bool> flag = OneBool(tensor);
  if (!flag.ok()) return flag.error();
  set(flag.value());
  return std::nullopt;
}

using T = const InputTensor&;
using D = Draft&;

struct InputReader {
  TensorFacts facts;
  Problem (*read)(const InputTensor& tensor, Draft& draft);
};

constexpr InputReader kInputs[] = {
    {{"text_input", "BYTES", 1}, ReadText},
    {{"input_ids", "INT32", -1}, ReadIds},
    {{"stream", "BOOL", 1}, [](T t, D d) { return ReadFlag(t, [&](bool on) { d.stream = on; }); }},
    {{"sampling_parameters", "BYTES", 1}, ReadSamplingTensor},
    {{"exclude_input_in_output", "BOOL", 1},
     [](T t, D d) { return ReadFlag(t, [&](bool on) { d.out.generate.echo = !on; }); }},
    {{"return_finish_reason", "BOOL", 1},
     [](T t, D d) { return ReadFlag(t, [&](bool on) { d.out.wanted.finish_reason = on; }); }},
    {{"return_cumulative_logprob", "BOOL", 1},
     [](T t, D d) { return ReadFlag(t, [&](bool on) { d.out.wanted.cumulative_logprob = on; }); }},
    {{"return_logprobs", "BOOL", 1},
     [](T t, D d) { return ReadFlag(t, [&](bool on) { d.out.wanted.logprobs = on; }); }},
    {{"return_num_input_tokens", "BOOL", 1},
     [](T t, D d) { return ReadFlag(t, [&](bool on) { d.out.wanted.input_count = on; }); }},
    {{"return_num_output_tokens", "BOOL", 1},
     [](T t, D d) { return ReadFlag(t, [&](bool on) { d.out.wanted.output_count = on; }); }},
};

Problem ReadInputs(const InferMessage& message, Draft& draft) {
  for (size_t i = 0; i < message.inputs.size(); ++i) {
    const InputTensor& tensor = message.inputs[i];
    const InputReader* known = nullptr;
    for (const InputReader& reader : kInputs) {
      if (reader.facts.name == tensor.name) known = &reader;
    }
    if (known == nullptr) {
      return InvalidField(
          "inputs", Quoted(tensor.name) + " is not an input; there are " + NamesOf(InputFacts()));
    }
    // The table bounds their number, since a repeated name is refused.
    for (size_t k = 0; k < i; ++k) {
      if (message.inputs[k].name == tensor.name) return InvalidField(tensor.name, "is given twice");
    }
    if (auto problem = known->read(tensor, draft)) return problem;
  }
  if (!draft.has_prompt) {
    return InvalidField("text_input", "is missing; give text_input, or tokens as input_ids");
  }
  return std::nullopt;
}

// --- outputs

struct OutputName {
  TensorFacts facts;
  bool WantedOutputs::*wanted;
};
constexpr OutputName kOutputs[] = {
    {{"text_output", "BYTES", 1}, &WantedOutputs::text},
    {{"output_ids", "INT32", -1}, &WantedOutputs::ids},
    {{"finish_reason", "BYTES", 1}, &WantedOutputs::finish_reason},
    {{"cumulative_logprob", "FP32", 1}, &WantedOutputs::cumulative_logprob},
    {{"logprobs", "BYTES", 1}, &WantedOutputs::logprobs},
    {{"num_input_tokens", "UINT32", 1}, &WantedOutputs::input_count},
    {{"num_output_tokens", "UINT32", 1}, &WantedOutputs::output_count},
};

Problem ReadOutputs(const InferMessage& message, WantedOutputs& wanted) {
  if (message.outputs.empty()) return std::nullopt;
  WantedOutputs named{false, false, false, false, false, false, false};
  for (const std::string_view name : message.outputs) {
    const OutputName* known = nullptr;
    for (const OutputName& output : kOutputs) {
      if (output.facts.name == name) known = &output;
    }
    if (known == nullptr) {
      return InvalidField("outputs",
                          Quoted(name) + " is not an output; there are " + NamesOf(OutputFacts()));
    }
    named.*known->wanted = true;
  }
  wanted = named;
  return std::nullopt;
}

// --- parameters

Problem ReadPriority(const Value& value, std::string_view name, InferRequest& out) {
  std::optional<int32_t> priority;
  if (auto problem = ReadInt(value, name, priority)) return problem;
  out.generate.priority = *priority;
  return std::nullopt;
}

Problem ReadTimeout(const Value& value, std::string_view name, InferRequest& out) {
  const auto us = json::AsInt(value, name);
  if (!us.ok()) return ErrorFromStatus(us.status(), name);
  if (*us < 0) return InvalidField(name, "must be a number of microseconds, or 0 for none");
  const uint64_t ms = (static_cast<uint64_t>(*us) + 999) / 1000;
  out.generate.timeout_ms = std::min(ms, kMaxTimeoutMs);
  return std::nullopt;
}

// Requests here are independent of each other; a client states so with neutral values.
Problem NoSequences(const Value& value, std::string_view name, InferRequest&) {
  const bool nothing = (value.is_bool() && !value.get_bool()) ||
                       (value.is_string() && value.get_string().empty()) ||
                       (value.is_int64() && value.get_int64() == 0);
  if (nothing) return std::nullopt;
  return InvalidField(name, "sequences are not served; leave it out");
}

struct Parameter {
  std::string_view name;
  Problem (*read)(const Value& value, std::string_view name, InferRequest& out);
};
constexpr Parameter kParameters[] = {
    {"triton_enable_empty_final_response",
     [](const Value& v, std::string_view n, InferRequest& out) {
       return ReadBool(v, n, out.empty_final);
     }},
    {"binary_data_output", [](const Value& v, std::string_view n,
                              InferRequest& out) { return ReadBool(v, n, out.raw_outputs); }},
    {"priority", ReadPriority},
    {"timeout", ReadTimeout},
    {"sequence_id", NoSequences},
    {"sequence_start", NoSequences},
    {"sequence_end", NoSequences},
};

Problem ReadParameters(const json::Object& parameters, const RequestLimits& limits,
                       InferRequest& out) {
  json::Object sampling;
  for (const auto& member : parameters) {
    const std::string_view name(member.key().data(), member.key().size());
    const Parameter* known = nullptr;
    for (const Parameter& parameter : kParameters) {
      if (parameter.name == name) known = &parameter;
    }
    if (known == nullptr) {
      sampling[member.key()] = member.value();
    } else if (auto problem = known->read(member.value(), name, out)) {
      return problem;
    }
  }
  return ReadSamplingKeys(sampling, limits, out);
}

Problem CheckNames(const InferMessage& message) {
  if (message.model.empty()) return InvalidField("model_name", "is missing");
  if (message.model.size() > kMaxIdBytes) {
    return InvalidField("model_name", "must have at most 1024 bytes");
  }
  if (message.id.size() > kMaxIdBytes) return InvalidField("id", "must have at most 1024 bytes");
  return CheckVersion(message.version, "model_version");
}

template <class Row, size_t n>
std::vector<TensorFacts> FactsOf(const Row (&rows)[n]) {
  std::vector<TensorFacts> facts;
  for (const Row& row : rows) facts.push_back(row.facts);
  return facts;
}

}  // namespace

const std::vector<TensorFacts>& InputFacts() {
  static const auto& facts = *new std::vector<TensorFacts>(FactsOf(kInputs));
  return facts;
}

const std::vector<TensorFacts>& OutputFacts() {
  static const auto& facts = *new std::vector<TensorFacts>(FactsOf(kOutputs));
  return facts;
}

Problem CheckVersion(std::string_view version, std::string_view field) {
  if (version.empty() || version == kVersion) return std::nullopt;
  return InvalidField(field, Quoted(version) + " is not served; every model has the version 1");
}

Problem SettleInfer(const RequestLimits& limits, InferRequest& out) {
  SamplingOptions& sampling = out.generate.sampling;
  if (sampling.n != 1) {
    return InvalidField("n", "must be 1: an answer has one text here; send a request for each");
  }
  if (out.generate.echo && out.wanted.logprobs) {
    return InvalidField("return_logprobs", "is not served together with the prompt's text");
  }
  const bool scored = out.wanted.logprobs || out.wanted.cumulative_logprob;
  if (scored && !sampling.logprobs) sampling.logprobs = 0;
  out.generate.streaming = out.stream;
  if (auto problem = CheckSampling(sampling, out.generate.echo)) return problem;
  if (auto problem = CheckTruncation(out.generate.truncate_prompt_tokens)) return problem;
  if (auto problem = SettleConstraint(std::move(out.constraint), out.generate)) return problem;
  return CheckLimits(out.generate, limits);
}

Problem ReadInfer(const InferMessage& message, Answering answering, const RequestLimits& limits,
                  InferRequest& out) {
  if (auto problem = CheckNames(message)) return problem;
  out.id = std::string(message.id);
  out.model = std::string(message.model);
  out.generate.model = out.model;
  Draft draft{limits, out};
  if (auto problem = ReadInputs(message, draft)) return problem;
  if (auto problem = ReadOutputs(message, out.wanted)) return problem;
  if (auto problem = ReadParameters(message.parameters, limits, out)) return problem;
  if (answering == Answering::kOnce && draft.stream.value_or(false)) {
    return InvalidField("stream", "this call answers once; use ModelStreamInfer");
  }
  out.stream = answering == Answering::kStream && draft.stream.value_or(true);
  return SettleInfer(limits, out);
}

}  // namespace quire::oip
