#include "router/chat/constraint_fields.h"

#include <algorithm>
#include <utility>

#include "common/utf8.h"
#include "router/core/result.h"

namespace quire {
namespace {

using json::Value;

std::string Shown(std::string_view text) { return "\"" + ValidUtf8(text.substr(0, 64)) + "\""; }

FieldError TooLong(std::string_view field, size_t bytes, size_t limit) {
  return InvalidField(field, "has " + std::to_string(bytes) + " bytes; at most " +
                                 std::to_string(limit) + " are served");
}

// The value, or what a text holds as JSON, which then lives in `read`; nullptr: `problem` says why.
const Value* Unquoted(const Value& value, std::string_view field, const RequestLimits& limits,
                      Value& read, FieldError& problem) {
  if (!value.is_string()) return &value;
  const std::string_view text = json::View(value.get_string());
  if (text.size() > kMaxConstraintBytes) {
    problem = TooLong(field, text.size(), kMaxConstraintBytes);
    return nullptr;
  }
  auto parsed = ReadJson(text, limits);
  if (absl::IsUnavailable(parsed.status())) {
    problem = TooManyLargeRequests();
  } else if (!parsed.ok()) {
    problem = InvalidField(field, "is a text that is no JSON: " + StatusMessage(parsed.status()));
  }
  if (problem) return nullptr;
  read = *std::move(parsed);
  return &read;
}

FieldError ReadSchema(const Value& value, std::string_view field, const RequestLimits& limits,
                      ConstraintDraft& draft) {
  Value read;
  FieldError problem;
  const Value* schema = Unquoted(value, field, limits, read, problem);
  if (problem) return problem;
  if (!schema->is_object()) {
    return InvalidField(field, "must be a JSON schema, an object such as {\"type\": \"object\"}");
  }
  return SetConstraint(ConstraintKind::kJsonSchema, json::Serialize(*schema), field, draft);
}

// A text that is the source; where `may_be_empty`, an empty one is none.
FieldError ReadSource(const Value& value, std::string_view field, ConstraintKind kind,
                      bool may_be_empty, ConstraintDraft& draft) {
  std::string source;
  if (auto problem = ReadString(value, field, source)) return problem;
  if (source.empty() && may_be_empty) return std::nullopt;
  return SetConstraint(kind, std::move(source), field, draft);
}

FieldError ReadGrammar(const Value& value, std::string_view field, bool may_be_empty,
                       ConstraintDraft& draft) {
  std::string source;
  if (auto problem = ReadString(value, field, source)) return problem;
  if (source.empty() && may_be_empty) return std::nullopt;
  return SetGrammar(std::move(source), field, draft);
}

FieldError ReadChoice(const Value& value, std::string_view field, bool may_be_empty,
                      const RequestLimits& limits, ConstraintDraft& draft) {
  Value read;
  FieldError problem;
  if (value.is_string() && value.get_string().empty() && may_be_empty) return std::nullopt;
  const Value* list = Unquoted(value, field, limits, read, problem);
  if (problem) return problem;
  const bool texts =
      list->is_array() && std::all_of(list->get_array().begin(), list->get_array().end(),
                                      [](const Value& each) { return each.is_string(); });
  if (!texts) return InvalidField(field, "must be a list of strings such as [\"yes\", \"no\"]");
  if (list->get_array().empty()) {
    if (may_be_empty) return std::nullopt;
    return InvalidField(field, "must not be an empty list; name at least one text");
  }
  return SetConstraint(ConstraintKind::kChoice, json::Serialize(*list), field, draft);
}

FieldError ReadTags(const Value& value, std::string_view field, const RequestLimits& limits,
                    ConstraintDraft& draft) {
  Value read;
  FieldError problem;
  const Value* tags = Unquoted(value, field, limits, read, problem);
  if (problem) return problem;
  if (!tags->is_object()) {
    return InvalidField(field, "must be an object with format, or with structures and triggers");
  }
  return SetConstraint(ConstraintKind::kStructuralTag, json::Serialize(*tags), field, draft);
}

FieldError ReadFlag(const Value& value, std::string_view field, bool& flag,
                    std::string_view& set_by) {
  if (auto problem = ReadBool(value, field, flag)) return problem;
  set_by = flag ? field : std::string_view();
  return std::nullopt;
}

FieldError ReadPattern(const Value& value, std::string_view field, ConstraintDraft& draft) {
  std::string pattern;
  if (auto problem = ReadString(value, field, pattern)) return problem;
  return SetWhitespacePattern(std::move(pattern), field, draft);
}

// --- a format

// OpenAI has the schema below json_schema, llama.cpp and the Responses API beside the type, TGI
// below value, with or without a name.
FieldError ReadSchemaFormat(const json::Object& format, const FormatNames& names,
                            const RequestLimits& limits, ConstraintDraft& draft) {
  const Value* schema = json::Find(format, "schema");
  std::string_view field = names.schema;
  const Value* value = json::Find(format, "value");
  const Value* nested = json::Find(format, "json_schema");
  if (nested == nullptr && schema == nullptr) nested = value;
  if (nested != nullptr) {
    field = nested == value ? names.value : names.nested_schema;
    if (!nested->is_object()) return InvalidField(field, "must be in an object with a schema");
    schema = json::Find(nested->get_object(), "schema");
    const Value* strict = json::Find(nested->get_object(), "strict");
    if (strict != nullptr && !strict->is_bool()) {
      return InvalidField(field, "beside it, strict must be true or false");
    }
  }
  if (schema == nullptr) {
    return InvalidField(nested == nullptr ? names.nested_schema : field,
                        "is missing; give a JSON schema, an object such as {\"type\": \"object\"}");
  }
  return ReadSchema(*schema, field, limits, draft);
}

FieldError ReadJsonFormat(const json::Object& format, const FormatNames& names,
                          const RequestLimits& limits, ConstraintDraft& draft) {
  if (const Value* schema = json::Find(format, "schema")) {
    return ReadSchema(*schema, names.schema, limits, draft);
  }
  if (const Value* value = json::Find(format, "value")) {
    return ReadSchema(*value, names.value, limits, draft);
  }
  return SetConstraint(ConstraintKind::kJsonObject, "", names.format, draft);
}

FieldError ReadRegexFormat(const json::Object& format, const FormatNames& names,
                           ConstraintDraft& draft) {
  const Value* value = json::Find(format, "value");
  if (value == nullptr) return InvalidField(names.value, "is missing; give an expression");
  return ReadSource(*value, names.value, ConstraintKind::kRegex, false, draft);
}

// --- objects of vLLM

using V = const Value&;
using L = const RequestLimits&;
using D = ConstraintDraft&;

struct Member {
  std::string_view name, field, old_field;  // the latter two as clients spell them
  FieldError (*read)(V value, std::string_view field, L limits, D draft);
};

#define QUIRE_IN_OPTIONS(name) #name, "structured_outputs." #name, "guided_decoding." #name
constexpr Member kMembers[] = {
    {QUIRE_IN_OPTIONS(json), ReadSchema},
    {QUIRE_IN_OPTIONS(regex),
     [](V v, std::string_view f, L, D d) {
       return ReadSource(v, f, ConstraintKind::kRegex, false, d);
     }},
    {QUIRE_IN_OPTIONS(choice),
     [](V v, std::string_view f, L l, D d) { return ReadChoice(v, f, false, l, d); }},
    {QUIRE_IN_OPTIONS(grammar),
     [](V v, std::string_view f, L, D d) { return ReadGrammar(v, f, false, d); }},
    {QUIRE_IN_OPTIONS(json_object),
     [](V v, std::string_view f, L, D d) -> FieldError {
       bool on = false;
       if (auto problem = ReadBool(v, f, on)) return problem;
       return on ? SetConstraint(ConstraintKind::kJsonObject, "", f, d) : std::nullopt;
     }},
    {QUIRE_IN_OPTIONS(structural_tag), ReadTags},
    {QUIRE_IN_OPTIONS(disable_any_whitespace),
     [](V v, std::string_view f, L, D d) {
       return ReadFlag(v, f, d.constraint.compact, d.compact_field);
     }},
    {QUIRE_IN_OPTIONS(disable_additional_properties),
     [](V v, std::string_view f, L, D d) {
       return ReadFlag(v, f, d.constraint.closed, d.closed_field);
     }},
    {QUIRE_IN_OPTIONS(whitespace_pattern),
     [](V v, std::string_view f, L, D d) { return ReadPattern(v, f, d); }},
    // Which library compiles a constraint, and what to do where it fails: there is one.
    {QUIRE_IN_OPTIONS(backend), [](V, std::string_view, L, D) -> FieldError { return {}; }},
    {QUIRE_IN_OPTIONS(disable_fallback),
     [](V, std::string_view, L, D) -> FieldError { return {}; }},
};
#undef QUIRE_IN_OPTIONS

// In older releases of vLLM the object has another name.
FieldError ReadOptions(V value, bool old, L limits, D draft) {
  const std::string_view name = old ? "guided_decoding" : "structured_outputs";
  Value read;
  FieldError problem;
  if (value.is_string() && value.get_string().empty()) return std::nullopt;
  const Value* object = Unquoted(value, name, limits, read, problem);
  if (problem) return problem;
  if (!object->is_object()) {
    return InvalidField(name, "must be an object such as {\"regex\": \"[0-9]+\"}");
  }
  draft.options_field = name;
  for (const auto& each : object->get_object()) {
    const std::string_view key(each.key().data(), each.key().size());
    const auto* const member = std::find_if(std::begin(kMembers), std::end(kMembers),
                                            [&](const Member& m) { return m.name == key; });
    if (member == std::end(kMembers)) {
      return InvalidField(name, Shown(key) +
                                    " is no member; there are json, regex, choice, grammar, "
                                    "json_object, structural_tag, disable_any_whitespace, "
                                    "disable_additional_properties, whitespace_pattern");
    }
    if (each.value().is_null()) continue;
    const std::string_view field = old ? member->old_field : member->field;
    if (auto p = member->read(each.value(), field, limits, draft)) return p;
  }
  return std::nullopt;
}

// llama.cpp's is a text, TGI's an object with type and value.
FieldError ReadGrammarField(V value, L limits, D draft) {
  if (!value.is_object()) return ReadGrammar(value, "grammar", true, draft);
  constexpr FormatNames kNames = {.format = "grammar",
                                  .nested_schema = "grammar.value",
                                  .schema = "grammar.value",
                                  .value = "grammar.value"};
  const Value* type = json::Find(value.get_object(), "type");
  const std::string_view said =
      type != nullptr && type->is_string() ? json::View(type->get_string()) : std::string_view();
  if (said != "json" && said != "regex" && said != "json_schema") {
    return InvalidField("grammar",
                        "must be a grammar as a text, or an object with a value and the type json, "
                        "json_schema or regex");
  }
  if (json::Find(value.get_object(), "value") == nullptr) {
    return InvalidField("grammar.value", "is missing");
  }
  return ReadFormat(value, kNames, limits, draft);
}

constexpr ConstraintField kConstraintFields[] = {
    {"response_format", [](V v, L l, D d) { return ReadFormat(v, {}, l, d); }},
    {"structured_outputs", [](V v, L l, D d) { return ReadOptions(v, false, l, d); }},
    {"guided_decoding", [](V v, L l, D d) { return ReadOptions(v, true, l, d); }},
    {"guided_json",
     [](V v, L l, D d) -> FieldError {
       if (v.is_string() && v.get_string().empty()) return {};
       return ReadSchema(v, "guided_json", l, d);
     }},
    {"guided_regex",
     [](V v, L, D d) { return ReadSource(v, "guided_regex", ConstraintKind::kRegex, true, d); }},
    {"guided_choice", [](V v, L l, D d) { return ReadChoice(v, "guided_choice", true, l, d); }},
    {"guided_grammar", [](V v, L, D d) { return ReadGrammar(v, "guided_grammar", true, d); }},
    {"guided_whitespace_pattern",
     [](V v, L, D d) { return ReadPattern(v, "guided_whitespace_pattern", d); }},
    {"guided_decoding_backend", [](V, L, D) -> FieldError { return {}; }},
    {"grammar", ReadGrammarField},
    {"json_schema",
     [](V v, L l, D d) -> FieldError {
       if (v.is_string() && v.get_string().empty()) return {};
       return ReadSchema(v, "json_schema", l, d);
     }},
    {"regex", [](V v, L, D d) { return ReadSource(v, "regex", ConstraintKind::kRegex, true, d); }},
    {"ebnf", [](V v, L, D d) { return ReadGrammar(v, "ebnf", true, d); }},
    {"structural_tag", [](V v, L l, D d) { return ReadTags(v, "structural_tag", l, d); }},
};

bool IsJson(ConstraintKind kind) {
  return kind == ConstraintKind::kJsonSchema || kind == ConstraintKind::kJsonObject ||
         kind == ConstraintKind::kStructuralTag;
}

}  // namespace

std::span<const ConstraintField> ConstraintFields() { return kConstraintFields; }

const ConstraintField* FindConstraintField(std::string_view name) {
  for (const ConstraintField& field : kConstraintFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

FieldError ReadFormat(const Value& value, const FormatNames& names, const RequestLimits& limits,
                      ConstraintDraft& draft) {
  constexpr std::string_view kTypes =
      "text, json_object, json_schema, structural_tag, json or regex";
  Value read;
  FieldError problem;
  if (value.is_string() && value.get_string().empty()) return std::nullopt;
  const Value* object = Unquoted(value, names.format, limits, read, problem);
  if (problem) return problem;
  const Value* type = object->is_object() ? json::Find(object->get_object(), "type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return InvalidField(names.format, "must be an object with a type: " + std::string(kTypes));
  }
  const json::Object& format = object->get_object();
  const std::string_view said = json::View(type->get_string());
  if (said == "text") return std::nullopt;
  if (said == "json_object" || said == "json") return ReadJsonFormat(format, names, limits, draft);
  if (said == "json_schema") return ReadSchemaFormat(format, names, limits, draft);
  if (said == "regex") return ReadRegexFormat(format, names, draft);
  if (said == "structural_tag") return ReadTags(*object, names.format, limits, draft);
  return InvalidField(names.format, "the type " + Shown(said) + " is not served; it must be " +
                                        std::string(kTypes));
}

FieldError SetConstraint(ConstraintKind kind, std::string source, std::string_view field,
                         ConstraintDraft& draft) {
  if (!draft.field.empty()) {
    return InvalidField(field, std::string(draft.field) +
                                   " already says what the answer must be; give one of the two");
  }
  if (source.size() > kMaxConstraintBytes) {
    return TooLong(field, source.size(), kMaxConstraintBytes);
  }
  if (source.empty() && kind != ConstraintKind::kJsonObject) {
    return InvalidField(field, "must not be empty; leave it out for an answer without constraint");
  }
  draft.constraint.kind = kind;
  draft.constraint.source = std::move(source);
  draft.field = field;
  return std::nullopt;
}

FieldError SetGrammar(std::string source, std::string_view field, ConstraintDraft& draft) {
  const size_t start = std::min(source.find_first_not_of(" \t\r\n"), source.size());
  const bool lark = std::string_view(source).substr(start).starts_with("%llguidance");
  const ConstraintKind kind = lark ? ConstraintKind::kLark : ConstraintKind::kGrammar;
  return SetConstraint(kind, std::move(source), field, draft);
}

FieldError ReadSchemaText(std::string_view text, std::string_view field,
                          const RequestLimits& limits, ConstraintDraft& draft) {
  return ReadSchema(Value(json::BoostView(text)), field, limits, draft);
}

FieldError ReadTagText(std::string_view text, std::string_view field, const RequestLimits& limits,
                       ConstraintDraft& draft) {
  return ReadTags(Value(json::BoostView(text)), field, limits, draft);
}

FieldError SetWhitespacePattern(std::string pattern, std::string_view field,
                                ConstraintDraft& draft) {
  if (pattern.empty()) return std::nullopt;
  if (pattern.size() > kMaxWhitespacePatternBytes) {
    return TooLong(field, pattern.size(), kMaxWhitespacePatternBytes);
  }
  draft.constraint.whitespace_pattern = std::move(pattern);
  draft.pattern_field = field;
  return std::nullopt;
}

FieldError SettleConstraint(ConstraintDraft draft, GenerateRequest& out) {
  const ConstraintKind kind = draft.constraint.kind;
  for (const std::string_view option :
       {draft.compact_field, draft.closed_field, draft.pattern_field}) {
    if (option.empty() || IsJson(kind)) continue;
    return InvalidField(option, draft.field.empty()
                                    ? std::string("needs a JSON schema, a JSON object or a "
                                                  "structural tag that it is about")
                                    : "is about JSON; " + std::string(draft.field) + " is not");
  }
  if (!draft.compact_field.empty() && !draft.pattern_field.empty()) {
    return InvalidField(draft.pattern_field, "says which white space there is, and " +
                                                 std::string(draft.compact_field) +
                                                 " that there is none; give one of the two");
  }
  if (!draft.closed_field.empty() && kind == ConstraintKind::kJsonObject) {
    return InvalidField(draft.closed_field,
                        "needs a schema: of any JSON object it would leave {} alone");
  }
  if (draft.field.empty()) {
    if (draft.options_field.empty()) return std::nullopt;
    return InvalidField(draft.options_field,
                        "needs one of json, regex, choice, grammar, json_object, structural_tag");
  }
  out.constraint = std::move(draft.constraint);
  out.constraint_field = draft.field;
  return std::nullopt;
}

}  // namespace quire
