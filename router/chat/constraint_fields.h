// The fields with which clients say what the text of an answer must be: OpenAI's, vLLM's,
// llama.cpp's, SGLang's and TGI's, for every API that reads them.
//
// Pure; any thread. Fields are hostile input; a worker compiles what passes here.
//  1. A request has one constraint at most; the refusal of a second one names both fields.
//  2. The keys of a schema keep the client's order, which is the order of the answer's properties.
//  3. A source has at most kMaxConstraintBytes, as the client wrote it where it is a text, else as
//     compact JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/wire/constraint.h"
#include "router/chat/json_fields.h"

namespace quire {

// The constraint of one request while its fields are read.
struct ConstraintDraft {
  Constraint constraint;
  std::string_view field;  // what the client called it, a literal; empty: there is none yet
  // What the client called the options of JSON, literals; empty where they are not set.
  std::string_view pattern_field, compact_field, closed_field;
  // What it called an object that should hold a constraint, a literal; empty: there was none.
  std::string_view options_field;
};

struct ConstraintField {
  std::string_view name;
  // A value, not null. A value that comes as a text where an object or a list is meant is read as
  // JSON, as clients write it that have texts only.
  FieldError (*read)(const json::Value& value, const RequestLimits& limits, ConstraintDraft& draft);
};

std::span<const ConstraintField> ConstraintFields();
// nullptr: there is no such field.
const ConstraintField* FindConstraintField(std::string_view name);

// A format in the shapes that response_format has: {"type": "text"}, "json_object", "json_schema"
// and more. Each protocol has its own names for the places in it, all literals.
struct FormatNames {
  std::string_view format = "response_format";
  std::string_view nested_schema = "response_format.json_schema.schema";
  std::string_view schema = "response_format.schema";  // beside the type
  std::string_view value = "response_format.value";    // TGI's
};
FieldError ReadFormat(const json::Value& value, const FormatNames& names,
                      const RequestLimits& limits, ConstraintDraft& draft);

// What messages have as texts of their own; `field` is a literal.
FieldError SetConstraint(ConstraintKind kind, std::string source, std::string_view field,
                         ConstraintDraft& draft);
// GBNF, or Lark behind llama.cpp's mark "%llguidance".
FieldError SetGrammar(std::string source, std::string_view field, ConstraintDraft& draft);
FieldError ReadSchemaText(std::string_view text, std::string_view field,
                          const RequestLimits& limits, ConstraintDraft& draft);
FieldError ReadTagText(std::string_view text, std::string_view field, const RequestLimits& limits,
                       ConstraintDraft& draft);
FieldError SetWhitespacePattern(std::string pattern, std::string_view field,
                                ConstraintDraft& draft);

// After all fields: checks that the options fit the constraint, and moves it into the request.
FieldError SettleConstraint(ConstraintDraft draft, GenerateRequest& out);

}  // namespace quire
