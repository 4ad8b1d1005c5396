// The flags that say what an answer must be, and what a request body has for them.
#pragma once

#include <string>

#include "common/config/schema.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {

struct AnswerForm {
  std::string json_schema;  // a file's path, or the schema itself
  std::string regex;
  std::string grammar;  // a file's path
};

void AddFormFlags(AnswerForm& form, config::Schema& schema);

// Puts it into a request body, in fields that other servers know too. INVALID_ARGUMENT for two
// flags at once, a file that cannot be read, and a schema that is no JSON object.
absl::Status SetForm(const AnswerForm& form, json::Object& body);

}  // namespace quire::cli
