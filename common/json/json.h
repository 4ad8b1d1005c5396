// Reads JSON with limits, and writes it, in one place: a thin layer over Boost.JSON.
//
// Any thread; values own their memory. Input is hostile: size, depth and number of values are
// bounded before a tree is built, whose memory can be charged first; an error says at which byte
// and why.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/memory_account.h"
#include "common/status.h"

namespace quire::json {

using Value = boost::json::value;
using Object = boost::json::object;
using Array = boost::json::array;
using String = boost::json::string;

// What Limits::pythons_infinity makes of an infinity.
inline constexpr double kPythonsInfinity = 1e308;

struct Limits {
  size_t max_bytes = 64u << 20;
  size_t max_depth = 64;
  size_t max_values = size_t{16} << 20;
  // Python's Infinity and -Infinity are read as ±kPythonsInfinity.
  bool pythons_infinity = false;
  MemoryHold* hold = nullptr;  // grows by what the tree may need, before it is built
};

// The contents of a text, counted without parsing it; for a malformed one, at least what Parse
// reads of it.
struct Extent {
  size_t depth = 0;
  size_t values = 0;
  size_t tree_bytes = 0;  // upper bound of the memory of Parse and of its result
};
Extent Measure(std::string_view text);

inline std::string_view View(const String& s) { return {s.data(), s.size()}; }
inline boost::json::string_view BoostView(std::string_view s) { return {s.data(), s.size()}; }

// INVALID_ARGUMENT with byte offset for malformed text, RESOURCE_EXHAUSTED past max_bytes or
// max_depth, OUT_OF_RANGE past max_values, UNAVAILABLE where the hold has no room. Of duplicate
// keys the last one is kept. Numbers that fit no int64 or uint64 become doubles, and one that fits
// no double is refused with its position. Comments and trailing commas are refused; a byte order
// mark, NaN and, without pythons_infinity, Infinity, which Python writes, are refused by name.
absl::StatusOr<Value> Parse(std::string_view text, const Limits& limits = {});

// Compact text. Doubles are written in the shortest form that reads back equal; NaN and infinity as
// null.
std::string Serialize(const Value& value);
// `s` as a JSON string, including quotes, with invalid UTF-8 replaced by U+FFFD.
void AppendQuoted(std::string_view s, std::string& out);
// One byte as it stands inside a JSON string: a quote, a backslash and a control character escaped,
// every other byte as it is.
void AppendEscaped(char c, std::string& out);

// Members by name, absent or null → nullptr.
const Value* Find(const Object& object, std::string_view key);

// Typed reads; INVALID_ARGUMENT "key: must be …, is …". Integral doubles (3.0) count as integers.
absl::StatusOr<int64_t> AsInt(const Value& value, std::string_view name);
absl::StatusOr<double> AsDouble(const Value& value, std::string_view name);
absl::StatusOr<bool> AsBool(const Value& value, std::string_view name);
absl::StatusOr<std::string_view> AsString(const Value& value, std::string_view name);
absl::StatusOr<const Array*> AsArray(const Value& value, std::string_view name);
absl::StatusOr<const Object*> AsObject(const Value& value, std::string_view name);

}  // namespace quire::json
