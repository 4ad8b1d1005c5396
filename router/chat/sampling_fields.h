// The one table of the JSON names of sampling parameters, vLLM's and OpenAI's, for every API that
// reads them.
//
// Pure; any thread. CheckSampling defines the ranges.
#pragma once

#include <string_view>

#include "router/chat/json_fields.h"

namespace quire {

struct SamplingField {
  std::string_view name;
  // A value, not null. The error names the field.
  FieldError (*read)(const json::Value& value, std::string_view name, SamplingOptions& out);
};

// nullptr: there is no such parameter.
const SamplingField* FindSamplingField(std::string_view name);

}  // namespace quire
