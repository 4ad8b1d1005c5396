// What a request's tools say of their parameters' types, and text turned into JSON by it: dialects
// that write values as bare text need it.
//
// Immutable once made; any thread. Tools are hostile input.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire::dialect {

enum Type : uint8_t {
  kString = 1,
  kInteger = 2,
  kNumber = 4,
  kBoolean = 8,
  kNull = 16,
  kObject = 32,
  kArray = 64,
};
using TypeSet = uint8_t;  // of Type; 0: nothing is known

class ToolTypes {
 public:
  ToolTypes() = default;
  // A JSON array of tools: {"type": "function", "function": {name, parameters}}, or the inner
  // object alone. INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<ToolTypes> FromJson(std::string_view tools);

  // Of a function's parameter; 0 where tools do not say.
  TypeSet Of(std::string_view function, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, TypeSet, std::less<>>;
  std::map<std::string, Parameters, std::less<>> functions_;
};

// `text` as JSON of one of `types`, as it is written where it is such JSON, else as a string. A
// type that the schema leaves open is a string's.
std::string ValueByTypes(std::string_view text, TypeSet types);

// True for exactly one JSON value with nothing around it but white space.
bool IsJson(std::string_view text);

}  // namespace quire::dialect
