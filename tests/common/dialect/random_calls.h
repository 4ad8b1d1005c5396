// Random calls, and what compares them with what a parser has found.
#pragma once

#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/dialect/parser.h"
#include "common/json/json.h"
#include "tests/common/dialect/support.h"

namespace quire::dialect {

using Random = std::mt19937_64;

// One call: its arguments in order, each a JSON value.
struct Call {
  std::string name;
  std::vector<std::pair<std::string, json::Value>> arguments;
};

inline std::string Pick(Random& random, const std::vector<std::string>& from) {
  return from[random() % from.size()];
}

inline std::string RandomWord(Random& random) {
  return Pick(random, {"a", "get_weather", "city", "key_2", "unit", "path", "f9"});
}

inline std::string RandomText(Random& random, std::string_view never) {
  std::string out;
  for (size_t n = random() % 8; n > 0; --n) {
    out += Pick(random, {"x", " ",           "\n",   "\"",   "'",  "\\",  "{",  "}",
                         "[", "]",           "é",    "😀",    "\t", ",",   ":",  "<",
                         ">", "<tool_call>", "108.", "None", "</", "```", "; ", "("});
  }
  if (!never.empty() && out.find(never) != std::string::npos) out = "x";
  return out;
}

inline json::Value RandomValue(Random& random, int depth) {
  switch (random() % (depth > 2 ? 5 : 7)) {
    case 0:
      return static_cast<int64_t>(random() % 2000) - 1000;
    case 1:
      return static_cast<double>(random() % 1000) / 8 + 0.0625;
    case 2:
      return random() % 2 == 0;
    case 3:
      return nullptr;
    case 4:
      return json::Value(RandomText(random, ""));
    case 5: {
      json::Array array;
      for (size_t n = random() % 3; n > 0; --n) array.push_back(RandomValue(random, depth + 1));
      return array;
    }
    default: {
      json::Object object;
      for (size_t n = random() % 3; n > 0; --n) {
        object[RandomWord(random)] = RandomValue(random, depth + 1);
      }
      return object;
    }
  }
}

inline Call RandomCall(Random& random) {
  Call call{RandomWord(random), {}};
  std::map<std::string, bool> seen;
  for (size_t n = random() % 4; n > 0; --n) {
    const std::string key = RandomWord(random);
    if (!seen.emplace(key, true).second) continue;
    call.arguments.emplace_back(key, RandomValue(random, 0));
  }
  return call;
}

// Without nulls and empty lists and objects, which some dialects do not write.
inline json::Value Pruned(const json::Value& value) {
  if (value.is_array()) {
    json::Array out;
    for (const json::Value& one : value.get_array()) {
      json::Value pruned = Pruned(one);
      if (!pruned.is_null()) out.push_back(std::move(pruned));
    }
    return out.empty() ? json::Value() : json::Value(std::move(out));
  }
  if (!value.is_object()) return value;
  json::Object out;
  for (const auto& [key, one] : value.get_object()) {
    json::Value pruned = Pruned(one);
    if (!pruned.is_null()) out[key] = std::move(pruned);
  }
  return out.empty() ? json::Value() : json::Value(std::move(out));
}

inline Call Pruned(const Call& call) {
  Call out{call.name, {}};
  for (const auto& [key, value] : call.arguments) {
    json::Value pruned = Pruned(value);
    if (!pruned.is_null()) out.arguments.emplace_back(key, std::move(pruned));
  }
  return out;
}

inline json::Value ArgumentsOf(const Call& call) {
  json::Object object;
  for (const auto& [key, value] : call.arguments) object[key] = value;
  return object;
}

// Schemas that say of each argument what it is, where text alone does not: a request's tools.
inline std::string ToolsOf(const std::vector<Call>& calls) {
  json::Array tools;
  for (const Call& call : calls) {
    json::Object properties;
    for (const auto& [key, value] : call.arguments) {
      const char* type = value.is_string()   ? "string"
                         : value.is_bool()   ? "boolean"
                         : value.is_null()   ? "null"
                         : value.is_array()  ? "array"
                         : value.is_object() ? "object"
                                             : "number";
      properties[key] = json::Object{{"type", type}};
    }
    json::Object function{
        {"name", call.name},
        {"description", "Does it."},
        {"parameters", json::Object{{"type", "object"}, {"properties", std::move(properties)}}}};
    tools.push_back(json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return json::Serialize(tools);
}

inline ToolTypes TypesOf(const std::vector<Call>& calls) {
  return *ToolTypes::FromJson(ToolsOf(calls));
}

// Sorted keys, so that the order in an object does not matter.
inline std::string Canonical(const json::Value& value) {
  if (value.is_object()) {
    std::map<std::string, std::string> sorted;
    for (const auto& [key, one] : value.get_object()) sorted[std::string(key)] = Canonical(one);
    std::string out = "{";
    for (const auto& [key, one] : sorted) out += Quoted(key) + ":" + one + ",";
    return out + "}";
  }
  if (!value.is_array()) return json::Serialize(value);
  std::string out = "[";
  for (const json::Value& one : value.get_array()) out += Canonical(one) + ",";
  return out + "]";
}

}  // namespace quire::dialect
