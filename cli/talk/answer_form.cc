#include "cli/talk/answer_form.h"

#include <fstream>
#include <optional>

#include "common/wire/constraint.h"

namespace quire::cli {
namespace {

// A router takes no larger one.
absl::StatusOr<std::string> ReadForm(const std::string& flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConstraintBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.empty()) return InvalidArgument(flag + ": " + path + " is empty or cannot be read");
  if (text.size() <= kMaxConstraintBytes) return text;
  return InvalidArgument(flag + ": " + path + " has more than " +
                         std::to_string(kMaxConstraintBytes) + " bytes");
}

absl::Status SetSchema(const std::string& given, json::Object& body) {
  std::string text = given;
  if (const size_t first = given.find_first_not_of(" \t\r\n");
      first == std::string::npos || given[first] != '{') {
    QUIRE_ASSIGN_OR_RETURN(text, ReadForm("--json-schema", given));
  }
  auto schema = json::Parse(text);
  if (!schema.ok()) return Annotate(schema.status(), "--json-schema");
  if (!schema->is_object()) {
    return InvalidArgument(
        "--json-schema: must be a JSON schema, an object such as {\"type\": \"object\"}");
  }
  json::Object named;
  named["name"] = "answer";
  named["schema"] = *std::move(schema);
  json::Object format;
  format["type"] = "json_schema";
  format["json_schema"] = std::move(named);
  body["response_format"] = std::move(format);
  return absl::OkStatus();
}

}  // namespace

void AddFormFlags(AnswerForm& form, config::Schema& schema) {
  schema.Add({.name = "json-schema",
              .help = "The answer is JSON that fits this schema: a file, or the schema itself.",
              .target = &form.json_schema,
              .value_name = "FILE|TEXT",
              .default_text = "none"});
  schema.Add({.name = "regex",
              .help = "The answer matches this expression as a whole.",
              .target = &form.regex,
              .default_text = "none"});
  schema.Add({.name = "grammar",
              .help = "The answer follows the grammar in this file: GBNF, or Lark behind a first "
                      "line %llguidance {}.",
              .target = &form.grammar,
              .value_name = "FILE",
              .default_text = "none"});
}

absl::Status SetForm(const AnswerForm& form, json::Object& body) {
  const struct {
    const char* flag;
    const std::string& value;
  } flags[] = {
      {"--json-schema", form.json_schema}, {"--regex", form.regex}, {"--grammar", form.grammar}};
  std::string given;
  for (const auto& each : flags) {
    if (each.value.empty()) continue;
    if (!given.empty()) {
      return InvalidArgument(std::string(each.flag) + ": " + given +
                             " already says what the answer must be; give one of the two");
    }
    given = each.flag;
  }
  if (!form.json_schema.empty()) return SetSchema(form.json_schema, body);
  if (!form.regex.empty()) {
    json::Object options;
    options["regex"] = form.regex;
    body["structured_outputs"] = std::move(options);
  }
  if (!form.grammar.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string grammar, ReadForm("--grammar", form.grammar));
    body["grammar"] = grammar;
  }
  return absl::OkStatus();
}

}  // namespace quire::cli
