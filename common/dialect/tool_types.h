// What a request's tools say of their parameters' types, and text turned into JSON by it: dialects
// that write values as bare text need it.
//
// Immutable once made; any thread. Tools are hostile input.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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

inline constexpr int kMaxTypedDepth = 6;

// What a value may be, and what is inside it, as far as its schema names that.
struct ValueTypes {
  TypeSet types = 0;
  std::map<std::string, ValueTypes, std::less<>> members;  // of an object
  std::vector<ValueTypes> items;                           // of an array: one for all, or none
};

class ToolTypes {
 public:
  ToolTypes() = default;
  // A JSON array of tools: {"type": "function", "function": {name, parameters}}, or the inner
  // object alone. INVALID_ARGUMENT names what is wrong.
  // `inside`: what is inside objects and arrays is asked for too, as dialects of Form::kNested do.
  static absl::StatusOr<ToolTypes> FromJson(std::string_view tools, bool inside = false);

  // Of a function's parameter; 0 where tools do not say.
  TypeSet Of(std::string_view function, std::string_view parameter) const;
  // The same with what is inside it, up to kMaxTypedDepth levels; null where tools do not say.
  const ValueTypes* Find(std::string_view function, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, ValueTypes, std::less<>>;
  std::map<std::string, Parameters, std::less<>> functions_;
};

// `text` as JSON of one of `types`, as it is written where it is such JSON, else as a string. A
// type that the schema leaves open is a string's.
std::string ValueByTypes(std::string_view text, TypeSet types);

// True for exactly one JSON value with nothing around it but white space.
bool IsJson(std::string_view text);

}  // namespace quire::dialect
