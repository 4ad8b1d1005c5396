#include "router/chat/sampling_fields.h"

#include <charconv>

#include "router/core/result.h"

namespace quire {
namespace {

using json::Value;

FieldError ReadEarlyStopping(const Value& value, std::string_view name, EarlyStopping& out) {
  if (value.is_bool()) {
    out = value.get_bool() ? EarlyStopping::kWhenFull : EarlyStopping::kHeuristic;
    return std::nullopt;
  }
  if (value.is_string() && json::View(value.get_string()) == "never") {
    out = EarlyStopping::kNever;
    return std::nullopt;
  }
  return InvalidField(name, "must be true, false or \"never\"");
}

FieldError ReadLogitBias(const Value& value, std::string_view name, SamplingOptions& out) {
  auto object = json::AsObject(value, name);
  if (!object.ok()) return ErrorFromStatus(object.status(), name);
  for (const auto& member : **object) {
    int32_t id = 0;
    const std::string_view key(member.key().data(), member.key().size());
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return InvalidField(name, "its keys must be token ids, written as decimal numbers");
    }
    std::optional<float> bias;
    if (auto problem = ReadFloat(member.value(), name, bias)) return problem;
    out.logit_bias[id] = *bias;
  }
  return std::nullopt;
}

FieldError Read(const Value& value, std::string_view name, std::optional<float>& out) {
  return ReadFloat(value, name, out);
}
FieldError Read(const Value& value, std::string_view name, std::optional<int32_t>& out) {
  return ReadInt(value, name, out);
}

using V = const Value&;
using N = std::string_view;
using S = SamplingOptions&;

// In no order that matters.
constexpr SamplingField kFields[] = {
#define QUIRE_READ_NUMBER(name, range, feature) \
  {#name, [](V v, N n, S s) { return Read(v, n, s.name); }},
#define QUIRE_READ_LIST(name, most, feature) \
  {#name, [](V v, N n, S s) { return ReadTokenIds(v, n, s.name); }},
    QUIRE_SAMPLING_NUMBERS(QUIRE_READ_NUMBER) QUIRE_SAMPLING_LISTS(QUIRE_READ_LIST)
#undef QUIRE_READ_NUMBER
#undef QUIRE_READ_LIST
        {"seed", [](V v, N n, S s) { return ReadUint64(v, n, s.seed.emplace()); }},
    {"stop", [](V v, N n, S s) { return ReadStrings(v, n, s.stop); }},
    {"include_stop_str_in_output",
     [](V v, N n, S s) { return ReadBool(v, n, s.include_stop_str_in_output); }},
    {"ignore_eos", [](V v, N n, S s) { return ReadBool(v, n, s.ignore_eos); }},
    {"n",
     [](V v, N n, S s) {
       std::optional<int32_t> count;
       FieldError problem = ReadInt(v, n, count);
       if (!problem) s.n = *count;
       return problem;
     }},
    {"logprobs", [](V v, N n, S s) { return ReadInt(v, n, s.logprobs); }},
    {"prompt_logprobs", [](V v, N n, S s) { return ReadInt(v, n, s.prompt_logprobs); }},
    {"logit_bias", ReadLogitBias},
    {"bad_words", [](V v, N n, S s) { return ReadStrings(v, n, s.bad_words); }},
    {"skip_special_tokens", [](V v, N n, S s) { return ReadBool(v, n, s.skip_special_tokens); }},
    {"spaces_between_special_tokens",
     [](V v, N n, S) {
       // No served tokenizer puts spaces there, so that both values mean the same.
       bool ignored = true;
       return ReadBool(v, n, ignored);
     }},
    {"use_beam_search", [](V v, N n, S s) { return ReadBool(v, n, s.use_beam_search); }},
    {"early_stopping", [](V v, N n, S s) { return ReadEarlyStopping(v, n, s.early_stopping); }},
};

}  // namespace

const SamplingField* FindSamplingField(std::string_view name) {
  for (const SamplingField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

}  // namespace quire
