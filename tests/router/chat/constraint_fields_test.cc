// Every spelling of a constraint, every bad one, and the limits.
#include "router/chat/constraint_fields.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "common/json/json.h"

namespace quire {
namespace {

// The members of a body that says nothing else.
FieldError Read(const std::string& members, GenerateRequest& out,
                const RequestLimits& limits = {}) {
  const auto body = json::Parse("{" + members + "}");
  EXPECT_TRUE(body.ok()) << members << ": " << body.status();
  ConstraintDraft draft;
  for (const auto& member : body->get_object()) {
    const ConstraintField* field = FindConstraintField({member.key().data(), member.key().size()});
    EXPECT_NE(field, nullptr) << members;
    if (field == nullptr || member.value().is_null()) continue;
    if (auto problem = field->read(member.value(), limits, draft)) return problem;
  }
  return SettleConstraint(std::move(draft), out);
}

GenerateRequest MustRead(const std::string& members) {
  GenerateRequest out;
  const FieldError problem = Read(members, out);
  EXPECT_FALSE(problem) << members << ": " << (problem ? problem->message : "");
  return out;
}

std::string Quoted(std::string_view text) {
  std::string quoted;
  json::AppendQuoted(text, quoted);
  return quoted;
}

struct Spelling {
  std::string members;
  ConstraintKind kind;
  std::string source;
  std::string field;
};
using K = ConstraintKind;

// The keys are in no alphabetical order, so that a reader that sorts them shows.
constexpr char kSchema[] = R"({"type":"object","properties":{"b":{"type":"string"},"a":{}}})";
const std::string kText = Quoted(kSchema);

TEST(ConstraintFields, EverySpellingBecomesWhatItMeans) {
  const std::string schema = kSchema;
  const Spelling spellings[] = {
      {R"("response_format":{"type":"json_object"})", K::kJsonObject, "", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema +
           R"(,"strict":true}})",
       K::kJsonSchema, schema, "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + schema +
           R"(,"strict":false,"description":"d"}})",
       K::kJsonSchema, schema, "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":)" + schema +
           R"(,"strict":null}})",
       K::kJsonSchema, schema, "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","schema":)" + schema + "}", K::kJsonSchema,
       schema, "response_format.schema"},
      {R"("response_format":{"type":"json_object","schema":)" + schema + "}", K::kJsonSchema,
       schema, "response_format.schema"},
      {R"("response_format":{"type":"json","value":)" + schema + "}", K::kJsonSchema, schema,
       "response_format.value"},
      {R"("response_format":{"type":"json_object","value":)" + schema + "}", K::kJsonSchema, schema,
       "response_format.value"},
      {R"("response_format":{"type":"json_schema","value":{"name":"n","schema":)" + schema + "}}",
       K::kJsonSchema, schema, "response_format.value"},
      {R"("response_format":{"type":"regex","value":"a+"})", K::kRegex, "a+",
       "response_format.value"},
      {R"("response_format":{"type":"structural_tag","format":{"type":"any_text"}})",
       K::kStructuralTag, R"({"type":"structural_tag","format":{"type":"any_text"}})",
       "response_format"},
      {R"("response_format":"{\"type\": \"json_object\"}")", K::kJsonObject, "", "response_format"},
      {R"("structured_outputs":{"json":)" + schema + "}", K::kJsonSchema, schema,
       "structured_outputs.json"},
      {R"("structured_outputs":{"json":)" + kText + "}", K::kJsonSchema, schema,
       "structured_outputs.json"},
      {R"("structured_outputs":{"regex":"[0-9]+","json":null})", K::kRegex, "[0-9]+",
       "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":["yes","no"]})", K::kChoice, R"(["yes","no"])",
       "structured_outputs.choice"},
      {R"("structured_outputs":{"grammar":"root ::= \"a\""})", K::kGrammar, "root ::= \"a\"",
       "structured_outputs.grammar"},
      {R"("structured_outputs":{"json_object":true})", K::kJsonObject, "",
       "structured_outputs.json_object"},
      {R"("structured_outputs":{"structural_tag":"{\"format\":{\"type\":\"any_text\"}}"})",
       K::kStructuralTag, R"({"format":{"type":"any_text"}})", "structured_outputs.structural_tag"},
      {R"("structured_outputs":{"regex":"a","backend":"guidance","disable_fallback":true})",
       K::kRegex, "a", "structured_outputs.regex"},
      {R"("structured_outputs":"{\"choice\":[\"x\"]}")", K::kChoice, R"(["x"])",
       "structured_outputs.choice"},
      {R"("guided_decoding":{"regex":"a"})", K::kRegex, "a", "guided_decoding.regex"},
      {R"("guided_json":)" + schema, K::kJsonSchema, schema, "guided_json"},
      {R"("guided_json":)" + kText, K::kJsonSchema, schema, "guided_json"},
      {R"("guided_regex":"a+","guided_decoding_backend":"outlines")", K::kRegex, "a+",
       "guided_regex"},
      {R"("guided_choice":["b","a"])", K::kChoice, R"(["b","a"])", "guided_choice"},
      {R"("guided_choice":"[\"b\"]")", K::kChoice, R"(["b"])", "guided_choice"},
      {R"("guided_grammar":"start: \"a\"")", K::kGrammar, "start: \"a\"", "guided_grammar"},
      {R"("grammar":"root ::= \"a\"")", K::kGrammar, "root ::= \"a\"", "grammar"},
      {R"("grammar":"\n%llguidance {}\nstart: \"::=\"")", K::kLark,
       "\n%llguidance {}\nstart: \"::=\"", "grammar"},
      {R"("grammar":{"type":"json","value":)" + schema + "}", K::kJsonSchema, schema,
       "grammar.value"},
      {R"("grammar":{"type":"json_schema","value":{"schema":)" + schema + "}}", K::kJsonSchema,
       schema, "grammar.value"},
      {R"("grammar":{"type":"regex","value":"a"})", K::kRegex, "a", "grammar.value"},
      {R"("json_schema":)" + schema, K::kJsonSchema, schema, "json_schema"},
      {R"("json_schema":)" + kText, K::kJsonSchema, schema, "json_schema"},
      {R"("json_schema":{})", K::kJsonSchema, "{}", "json_schema"},
      {R"("regex":"a")", K::kRegex, "a", "regex"},
      {R"("ebnf":"root ::= \"a\"")", K::kGrammar, "root ::= \"a\"", "ebnf"},
      {R"("structural_tag":{"format":{}})", K::kStructuralTag, R"({"format":{}})",
       "structural_tag"},
  };
  std::set<std::string> read;
  for (const Spelling& spelling : spellings) {
    const GenerateRequest out = MustRead(spelling.members);
    EXPECT_EQ(out.constraint.kind, spelling.kind) << spelling.members;
    EXPECT_EQ(out.constraint.source, spelling.source) << spelling.members;
    EXPECT_EQ(out.constraint_field, spelling.field) << spelling.members;
    const json::Value body = json::Parse("{" + spelling.members + "}").value();
    for (const auto& member : body.get_object()) read.insert(std::string(member.key()));
  }
  read.insert("guided_whitespace_pattern");  // below
  for (const ConstraintField& field : ConstraintFields()) {
    EXPECT_TRUE(read.contains(std::string(field.name))) << field.name << " has no line above";
  }
}

TEST(ConstraintFields, WhatSaysNothingIsNoConstraint) {
  for (const char* members :
       {"", R"("response_format":{"type":"text"})", R"("response_format":null)",
        R"("response_format":"")", R"("grammar":"","json_schema":"","guided_json":"")",
        R"("guided_regex":"","guided_grammar":"","guided_choice":[],"regex":"","ebnf":"")",
        R"("guided_choice":"","structured_outputs":"","guided_whitespace_pattern":"")",
        R"("structured_outputs":null,"guided_decoding_backend":"xgrammar")"}) {
    const GenerateRequest out = MustRead(members);
    EXPECT_EQ(out.constraint, Constraint()) << members;
  }
}

TEST(ConstraintFields, OptionsOfJsonArrive) {
  Constraint all = MustRead(R"("structured_outputs":{"json":{},"disable_any_whitespace":true,
      "disable_additional_properties":true,"whitespace_pattern":""})")
                       .constraint;
  EXPECT_TRUE(all.compact && all.closed);
  all =
      MustRead(R"("structured_outputs":{"json_object":true,"whitespace_pattern":" ?"})").constraint;
  EXPECT_EQ(all.whitespace_pattern, " ?");
  EXPECT_FALSE(all.compact || all.closed);
  // Whatever the order, and beside a constraint of another field.
  all = MustRead(R"("guided_whitespace_pattern":"\\n","guided_json":{})").constraint;
  EXPECT_EQ(all.whitespace_pattern, "\\n");
  all = MustRead(R"("response_format":{"type":"json_object"},
      "structured_outputs":{"disable_any_whitespace":true})")
            .constraint;
  EXPECT_TRUE(all.compact);
  EXPECT_EQ(all.kind, K::kJsonObject);
  // False is what they are anyway.
  all = MustRead(R"("structured_outputs":{"regex":"a","disable_any_whitespace":false,
      "disable_additional_properties":false,"json_object":false,"choice":null})")
            .constraint;
  EXPECT_EQ(all.kind, K::kRegex);
}

TEST(ConstraintFields, KeysKeepTheirOrderAndNumbersTheirValue) {
  const std::string schema =
      R"({"properties":{"z":{"maximum":9007199254740993},"y":{"multipleOf":0.01},)"
      R"("a":{"enum":[1.5,"é\u0001",1e+300]}},"required":["z"],"additionalProperties":false})";
  for (const std::string& value : {schema, Quoted(schema)}) {
    EXPECT_EQ(MustRead(R"("guided_json":)" + value).constraint.source, schema);
  }
}

struct Bad {
  std::string members;
  std::string param;
  std::string says;
};

TEST(ConstraintFields, BadOnesNameTheirFieldAndAValueThatWorks) {
  const Bad cases[] = {
      {R"("response_format":3)", "response_format", "type"},
      {R"("response_format":[])", "response_format", "type"},
      {R"("response_format":{})", "response_format", "type"},
      {R"("response_format":"json")", "response_format", "no JSON"},
      {R"("response_format":{"type":"yaml"})", "response_format", "\"yaml\""},
      {R"("response_format":{"type":"yaml"})", "response_format", "json_schema"},
      {R"("response_format":{"type":3})", "response_format", "type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema.schema",
       "missing"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
       "response_format.json_schema.schema", "missing"},
      {R"("response_format":{"type":"json_schema","json_schema":"n"})",
       "response_format.json_schema.schema", "object"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":true}})",
       "response_format.json_schema.schema", "{\"type\": \"object\"}"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}})",
       "response_format.json_schema.schema", "strict"},
      {R"("response_format":{"type":"json"})", "", ""},
      {R"("response_format":{"type":"regex"})", "response_format.value", "missing"},
      {R"("response_format":{"type":"regex","value":""})", "response_format.value", "empty"},
      {R"("structured_outputs":{})", "structured_outputs", "json, regex, choice"},
      {R"("structured_outputs":{"json_object":false})", "structured_outputs", "json, regex"},
      {R"("structured_outputs":[])", "structured_outputs", "object"},
      {R"("structured_outputs":"[")", "structured_outputs", "no JSON"},
      {R"("structured_outputs":{"yaml":1})", "structured_outputs", "\"yaml\""},
      {R"("structured_outputs":{"json":3})", "structured_outputs.json", "schema"},
      {R"("structured_outputs":{"json":"3"})", "structured_outputs.json", "schema"},
      {R"("structured_outputs":{"json":"{"})", "structured_outputs.json", "no JSON"},
      {R"("structured_outputs":{"json":true})", "structured_outputs.json", "schema"},
      {R"("structured_outputs":{"regex":3})", "structured_outputs.regex", "string"},
      {R"("structured_outputs":{"regex":""})", "structured_outputs.regex", "empty"},
      {R"("structured_outputs":{"choice":[]})", "structured_outputs.choice", "empty"},
      {R"("structured_outputs":{"choice":[1]})", "structured_outputs.choice", "[\"yes\""},
      {R"("structured_outputs":{"choice":"yes"})", "structured_outputs.choice", "no JSON"},
      {R"("structured_outputs":{"grammar":""})", "structured_outputs.grammar", "empty"},
      {R"("structured_outputs":{"json_object":"yes"})", "structured_outputs.json_object", "must"},
      {R"("structured_outputs":{"structural_tag":[]})", "structured_outputs.structural_tag",
       "format"},
      {R"("structured_outputs":{"json":{},"disable_any_whitespace":1})",
       "structured_outputs.disable_any_whitespace", "must"},
      {R"("structured_outputs":{"json":{},"whitespace_pattern":1})",
       "structured_outputs.whitespace_pattern", "must"},
      {R"("structured_outputs":{"regex":"a","disable_any_whitespace":true})",
       "structured_outputs.disable_any_whitespace", "structured_outputs.regex"},
      {R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern", "needs a JSON schema"},
      {R"("structured_outputs":{"json":{},"whitespace_pattern":" ","disable_any_whitespace":true})",
       "structured_outputs.whitespace_pattern", "structured_outputs.disable_any_whitespace"},
      {R"("structured_outputs":{"json_object":true,"disable_additional_properties":true})",
       "structured_outputs.disable_additional_properties", "schema"},
      {R"("guided_decoding":{"json":3})", "guided_decoding.json", "schema"},
      {R"("guided_decoding":{})", "guided_decoding", "json, regex"},
      {R"("guided_json":3)", "guided_json", "schema"},
      {R"("guided_regex":["a"])", "guided_regex", "string"},
      {R"("guided_choice":{"a":1})", "guided_choice", "list of strings"},
      {R"("grammar":3)", "grammar", "string"},
      {R"("grammar":{"type":"yaml","value":"a"})", "grammar", "json_schema or regex"},
      {R"("grammar":{"value":"a"})", "grammar", "type"},
      {R"("grammar":{"type":"json"})", "grammar.value", "missing"},
      {R"("grammar":{"type":"json","value":"a"})", "grammar.value", "no JSON"},
      {R"("json_schema":"a")", "json_schema", "no JSON"},
      {R"("structural_tag":3)", "structural_tag", "format"},
  };
  for (const Bad& bad : cases) {
    GenerateRequest out;
    const FieldError problem = Read(bad.members, out);
    if (bad.param.empty()) {  // TGI's name for any JSON, without a schema
      EXPECT_FALSE(problem) << bad.members;
      continue;
    }
    ASSERT_TRUE(problem) << bad.members;
    EXPECT_EQ(problem->code, ApiCode::kInvalidArgument) << bad.members;
    EXPECT_EQ(problem->param, bad.param) << problem->message;
    EXPECT_EQ(problem->message.rfind(bad.param + ": ", 0), 0u) << problem->message;
    EXPECT_NE(problem->message.find(bad.says), std::string::npos) << problem->message;
    EXPECT_EQ(problem->message.find('\n'), std::string::npos) << problem->message;
    EXPECT_EQ(out.constraint.kind, K::kNone);
  }
}

TEST(ConstraintFields, TwoConstraintsAreRefusedAndBothAreNamed) {
  const std::pair<std::string, std::string> one_of_each[] = {
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("structured_outputs":{"regex":"a"})", "structured_outputs.regex"},
      {R"("guided_json":{})", "guided_json"},
      {R"("grammar":"root ::= \"a\"")", "grammar"},
      {R"("json_schema":{})", "json_schema"},
      {R"("structural_tag":{"format":{}})", "structural_tag"},
  };
  for (const auto& [first, first_field] : one_of_each) {
    for (const auto& [second, second_field] : one_of_each) {
      if (first_field == second_field) continue;
      GenerateRequest out;
      const FieldError problem = Read(first + "," + second, out);
      ASSERT_TRUE(problem) << first << second;
      EXPECT_EQ(problem->param, second_field);
      EXPECT_NE(problem->message.find(first_field), std::string::npos) << problem->message;
      EXPECT_NE(problem->message.find("one of the two"), std::string::npos);
    }
  }
  GenerateRequest out;
  const FieldError problem = Read(R"("structured_outputs":{"regex":"a","choice":["b"]})", out);
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->message.find("structured_outputs.regex"), std::string::npos);
}

TEST(ConstraintFields, SizesAtTheLimitPassAndOneMoreByteDoesNot) {
  const auto schema = [](size_t bytes) {
    const std::string frame = R"({"const":""})";
    return R"({"const":")" + std::string(bytes - frame.size(), 'x') + "\"}";
  };
  const std::function<std::string(size_t)> sized[] = {
      [&](size_t n) { return R"("guided_json":)" + schema(n); },
      [&](size_t n) { return R"("guided_json":)" + Quoted(schema(n)); },
      [](size_t n) { return R"("regex":)" + Quoted(std::string(n, 'a')); },
      [](size_t n) { return R"("grammar":)" + Quoted(std::string(n, 'a')); },
      [](size_t n) { return R"("guided_choice":[)" + Quoted(std::string(n - 4, 'a')) + "]"; },
      [](size_t n) { return R"("structural_tag":{"a":)" + Quoted(std::string(n - 8, 'a')) + "}"; },
  };
  for (const auto& members : sized) {
    EXPECT_EQ(MustRead(members(kMaxConstraintBytes)).constraint.source.size(), kMaxConstraintBytes);
    GenerateRequest out;
    const FieldError problem = Read(members(kMaxConstraintBytes + 1), out);
    ASSERT_TRUE(problem) << members(20);
    EXPECT_NE(problem->message.find("131073 bytes; at most 131072"), std::string::npos)
        << problem->message.substr(0, 200);
    EXPECT_LT(problem->message.size(), 200u);
  }
  const auto pattern = [](size_t n) {
    return R"("guided_json":{},"guided_whitespace_pattern":)" + Quoted(std::string(n, ' '));
  };
  EXPECT_EQ(MustRead(pattern(kMaxWhitespacePatternBytes)).constraint.whitespace_pattern.size(),
            kMaxWhitespacePatternBytes);
  GenerateRequest out;
  const FieldError problem = Read(pattern(kMaxWhitespacePatternBytes + 1), out);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "guided_whitespace_pattern");
}

TEST(ConstraintFields, JsonInATextIsBoundedInDepthAndValues) {
  RequestLimits limits;
  limits.max_json_depth = 5;
  limits.max_json_values = 8;
  const auto nested = [](size_t depth) {
    return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  GenerateRequest out;
  EXPECT_FALSE(Read(R"("guided_json":)" + Quoted(nested(5)), out, limits));
  FieldError problem = Read(R"("guided_json":)" + Quoted(nested(6)), out, limits);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "guided_json");
  EXPECT_NE(problem->message.find("deeper than the limit of 5"), std::string::npos);
  const auto list = [](size_t items) {
    std::string text = "[\"x\"";
    for (size_t i = 1; i < items; ++i) text += ",\"x\"";
    return R"("guided_choice":)" + Quoted(text + "]");
  };
  EXPECT_FALSE(Read(list(7), out, limits));
  EXPECT_TRUE(Read(list(8), out, limits));
  // Memory for the tree is charged.
  const auto account = std::make_shared<MemoryAccount>(1 << 20);
  MemoryHold hold(account);
  limits.hold = &hold;
  EXPECT_FALSE(Read(list(7), out, limits));
  EXPECT_GT(hold.bytes(), 0u);
  hold.Resize((1 << 20) - 10);
  problem = Read(list(7), out, limits);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ApiCode::kUnavailable);
}

TEST(ConstraintFields, OtherProtocolsHaveTheirOwnNames) {
  constexpr FormatNames kNames = {.format = "text.format",
                                  .nested_schema = "text.format.schema",
                                  .schema = "text.format.schema",
                                  .value = "text.format.schema"};
  ConstraintDraft draft;
  const json::Value format =
      json::Parse(R"({"type":"json_schema","name":"n","schema":{}})").value();
  EXPECT_FALSE(ReadFormat(format, kNames, {}, draft));
  EXPECT_EQ(draft.field, "text.format.schema");
  ConstraintDraft other;
  const FieldError problem =
      ReadFormat(json::Parse(R"({"type":"json_schema","name":"n"})").value(), kNames, {}, other);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->param, "text.format.schema");
}

}  // namespace
}  // namespace quire
