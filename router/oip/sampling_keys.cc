#include <algorithm>
#include <iterator>

#include "common/utf8.h"
#include "router/chat/sampling_fields.h"
#include "router/oip/infer_request.h"

namespace quire::oip {
namespace {

using json::Value;
using Problem = std::optional<ApiError>;

// Known to vLLM and not served here, except at their neutral value.
constexpr std::string_view kUnserved[] = {
    "best_of",     "logits_processors", "extra_args",
    "output_kind", "lora_name",         "thinking_token_budget",
};
// Beams are several answers, for which this protocol has no place.
constexpr std::string_view kBeams[] = {"use_beam_search", "length_penalty", "early_stopping"};

bool MeansNothing(std::string_view name, const Value& value) {
  if (value.is_string()) return value.get_string().empty();
  if (value.is_array()) return value.get_array().empty();
  if (value.is_object()) return value.get_object().empty();
  return value.is_int64() && value.get_int64() == (name == "best_of" ? 1 : 0);
}

template <size_t n>
bool IsIn(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// For a value that comes as a string: the longest list that is served fits.
constexpr json::Limits kQuotedLimits = {.max_bytes = 64 << 10, .max_depth = 4};

// "0.5" for 0.5: clients of Triton's vLLM backend write all values as strings.
const Value& Unquoted(std::string_view name, const Value& value, Value& read) {
  if (!value.is_string() || name == "stop" || name == "bad_words") return value;
  std::string text(json::View(value.get_string()));
  if (text == "True") text = "true";
  if (text == "False") text = "false";
  auto parsed = json::Parse(text, kQuotedLimits);
  if (!parsed.ok()) return value;
  read = *std::move(parsed);
  return read;
}

struct OwnKey {
  std::string_view name;
  Problem (*read)(const Value& value, std::string_view name, GenerateRequest& out);
};
constexpr OwnKey kOwnKeys[] = {
    {"detokenize", [](const Value& v, std::string_view n,
                      GenerateRequest& out) { return ReadBool(v, n, out.want_text); }},
    {"truncate_prompt_tokens",
     [](const Value& v, std::string_view n, GenerateRequest& out) {
       return ReadInt(v, n, out.truncate_prompt_tokens);
     }},
    {"cache_salt", [](const Value& v, std::string_view n,
                      GenerateRequest& out) { return ReadName(v, n, out.cache_salt); }},
};

Problem ReadKey(std::string_view name, const Value& value, GenerateRequest& out) {
  for (const OwnKey& key : kOwnKeys) {
    if (key.name == name) return value.is_null() ? std::nullopt : key.read(value, name, out);
  }
  if (IsIn(kUnserved, name)) {
    if (value.is_null() || MeansNothing(name, value)) return std::nullopt;
    return InvalidField(name, "is not served; leave it out");
  }
  const SamplingField* field = IsIn(kBeams, name) ? nullptr : FindSamplingField(name);
  if (field == nullptr) {
    return InvalidField("sampling_parameters",
                        "\"" + ValidUtf8(name.substr(0, 64)) + "\" is not a sampling parameter");
  }
  return value.is_null() ? std::nullopt : field->read(value, name, out.sampling);
}

}  // namespace

Problem ReadSamplingKeys(const json::Object& sampling, const RequestLimits& limits,
                         InferRequest& out) {
  for (const auto& member : sampling) {
    const std::string_view name(member.key().data(), member.key().size());
    if (const ConstraintField* shape = FindConstraintField(name)) {
      if (member.value().is_null()) continue;
      if (auto problem = shape->read(member.value(), limits, out.constraint)) return problem;
      continue;
    }
    Value read;
    const Value& value =
        name == "cache_salt" ? member.value() : Unquoted(name, member.value(), read);
    if (auto problem = ReadKey(name, value, out.generate)) return problem;
  }
  return std::nullopt;
}

}  // namespace quire::oip
