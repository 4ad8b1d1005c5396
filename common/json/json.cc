#include "common/json/json.h"

#include <boost/json/parse.hpp>
#include <boost/json/stream_parser.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace quire::json {
namespace {

constexpr size_t kWorkingBytes = 4096;

const char* KindName(const Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "a list";
    case boost::json::kind::object:
      return "an object";
  }
  return "unknown";
}

absl::Status WrongType(std::string_view name, std::string_view wanted, const Value& value) {
  return InvalidArgument(std::string(name) + ": must be " + std::string(wanted) + ", is " +
                         KindName(value));
}

// Length of the valid UTF-8 character at s[i], or 0.
size_t Utf8Length(std::string_view s, size_t i) {
  auto byte = [&](size_t k) { return static_cast<unsigned char>(k < s.size() ? s[k] : 0); };
  auto tail = [&](size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const unsigned char b = byte(i);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(i + 1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!tail(i + 1) || !tail(i + 2)) return 0;
    if (b == 0xE0 && byte(i + 1) < 0xA0) return 0;
    if (b == 0xED && byte(i + 1) > 0x9F) return 0;
    return 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!tail(i + 1) || !tail(i + 2) || !tail(i + 3)) return 0;
    if (b == 0xF0 && byte(i + 1) < 0x90) return 0;
    if (b == 0xF4 && byte(i + 1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

void AppendNumber(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string_view text(buffer, result.ptr - buffer);
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

// The words that Python's json module writes for numbers that JSON lacks.
std::string WhyMalformed(std::string_view rest, const std::string& otherwise) {
  for (const std::string_view name : {"Infinity", "NaN"}) {
    if (rest.starts_with(name)) {
      return std::string(name) + " is no number in JSON; write null, or a number such as 1e308";
    }
  }
  return otherwise;
}

// From after the opening quote to after the closing one.
size_t SkipString(std::string_view text, size_t at, bool& escaped) {
  for (; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] != '\\') continue;
    escaped = true;
    ++at;
  }
  return text.size();
}

// As long as before: positions in messages stay those of the text.
std::string WithoutPythonsInfinity(std::string text) {
  constexpr std::string_view kWord = "Infinity", kNumber = "1e308   ";
  static_assert(kWord.size() == kNumber.size());
  bool escaped = false;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = SkipString(text, at + 1, escaped);
    } else if (std::string_view(text).substr(at).starts_with(kWord)) {
      text.replace(at, kWord.size(), kNumber);
      at += kWord.size();
    } else {
      ++at;
    }
  }
  return text;
}

void Append(const Value& value, std::string& out);

void AppendObject(const Object& object, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& member : object) {
    if (!first) out += ',';
    first = false;
    AppendQuoted({member.key().data(), member.key().size()}, out);
    out += ':';
    Append(member.value(), out);
  }
  out += '}';
}

void Append(const Value& value, std::string& out) {
  switch (value.kind()) {
    case boost::json::kind::null:
      out += "null";
      return;
    case boost::json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      return;
    case boost::json::kind::int64:
      out += std::to_string(value.get_int64());
      return;
    case boost::json::kind::uint64:
      out += std::to_string(value.get_uint64());
      return;
    case boost::json::kind::double_:
      AppendNumber(value.get_double(), out);
      return;
    case boost::json::kind::string:
      AppendQuoted(View(value.get_string()), out);
      return;
    case boost::json::kind::array: {
      out += '[';
      bool first = true;
      for (const Value& element : value.get_array()) {
        if (!first) out += ',';
        first = false;
        Append(element, out);
      }
      out += ']';
      return;
    }
    case boost::json::kind::object:
      AppendObject(value.get_object(), out);
      return;
  }
}

// Upper bounds of what Boost.JSON's parser takes, measured by a test over texts of every kind. A
// value counts its place in a list and on the parser's stack, which doubles as it grows; a member
// also its key's place and its bucket; a string its block beside its bytes.
constexpr size_t kBytesPerValue = 80;
constexpr size_t kBytesPerMember = 140;
constexpr size_t kBytesPerString = 48;
constexpr size_t kBytesPerTree = 16 << 10;
// A string with escapes is gathered piece by piece in a buffer that doubles.
constexpr size_t kEscapedCopies = 4;

// A number past the largest double is read as an infinity. As deep as the text, which is bounded.
bool HasInfinity(const Value& value) {
  if (value.is_double()) return std::isinf(value.get_double());
  if (const Array* array = value.if_array()) {
    return std::any_of(array->begin(), array->end(), HasInfinity);
  }
  const Object* object = value.if_object();
  return object != nullptr && std::any_of(object->begin(), object->end(), [](const auto& member) {
           return HasInfinity(member.value());
         });
}

// Of a well-formed text: where its first number stands that is read as an infinity.
size_t PlaceOfInfinity(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    bool escaped = false;
    if (text[at] == '"') {
      at = SkipString(text, at + 1, escaped);
    } else if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')) {
      const size_t end = std::min(text.find_first_not_of("+-.0123456789Ee", at), text.size());
      boost::json::error_code error;
      const Value number = boost::json::parse(BoostView(text.substr(at, end - at)), error);
      if (!error && HasInfinity(number)) return at;
      at = end;
    } else {
      ++at;
    }
  }
  return text.size();
}

absl::Status CheckExtent(std::string_view text, const Limits& limits) {
  const Extent extent = Measure(text);
  if (extent.depth > limits.max_depth) {
    return absl::ResourceExhaustedError(
        AbslView("JSON is nested deeper than the limit of " + std::to_string(limits.max_depth)));
  }
  if (extent.values > limits.max_values) {
    return absl::OutOfRangeError(
        AbslView("JSON has more values than the limit of " + std::to_string(limits.max_values)));
  }
  if (limits.hold == nullptr) return absl::OkStatus();
  if (limits.hold->TryResize(limits.hold->bytes() + extent.tree_bytes)) return absl::OkStatus();
  return absl::UnavailableError(AbslView(kTooManyLargeRequests));
}

}  // namespace

Extent Measure(std::string_view text) {
  Extent extent;
  size_t depth = 0;
  size_t members = 0;
  size_t strings = 0;
  size_t longest_escaped = 0;
  extent.values = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at++];
    if (c == '"') {
      bool escaped = false;
      const size_t end = SkipString(text, at, escaped);
      if (escaped) longest_escaped = std::max(longest_escaped, end - at);
      at = end;
      ++strings;
    } else if (c == ',') {
      ++extent.values;
    } else if (c == ':') {
      ++members;
    } else if (c == '[' || c == '{') {
      ++extent.values;  // the first one in it
      extent.depth = std::max(extent.depth, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  extent.tree_bytes = kBytesPerTree + kBytesPerValue * extent.values + kBytesPerMember * members +
                      kBytesPerString * strings + text.size() + kEscapedCopies * longest_escaped;
  return extent;
}

absl::StatusOr<Value> Parse(std::string_view text, const Limits& limits) {
  if (limits.pythons_infinity && text.size() <= limits.max_bytes &&
      text.find("Infinity") != std::string_view::npos) {
    Limits plain = limits;
    plain.pythons_infinity = false;
    return Parse(WithoutPythonsInfinity(std::string(text)), plain);
  }
  if (text.size() > limits.max_bytes) {
    return absl::ResourceExhaustedError(AbslView("JSON has " + std::to_string(text.size()) +
                                                 " bytes; the limit is " +
                                                 std::to_string(limits.max_bytes)));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return InvalidArgument("JSON begins with a byte order mark; save it as UTF-8 without one");
  }
  QUIRE_RETURN_IF_ERROR(CheckExtent(text, limits));
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  unsigned char working[kWorkingBytes];  // what a usual request needs; more comes from the heap
  boost::json::stream_parser parser({}, options, working, sizeof(working));
  boost::json::error_code error;
  const size_t used = parser.write_some(text.data(), text.size(), error);
  if (error) {
    return InvalidArgument("JSON is malformed at byte " + std::to_string(used) + ": " +
                           WhyMalformed(text.substr(used), error.message()));
  }
  if (!parser.done()) {
    parser.finish(error);
    if (error || !parser.done()) return InvalidArgument("JSON is cut short: it ends too early");
  }
  for (size_t i = used; i < text.size(); ++i) {
    if (text[i] != ' ' && text[i] != '\n' && text[i] != '\r' && text[i] != '\t') {
      return InvalidArgument("JSON has extra text at byte " + std::to_string(i));
    }
  }
  Value value = parser.release();
  if (HasInfinity(value)) {
    return InvalidArgument("JSON has a number at byte " + std::to_string(PlaceOfInfinity(text)) +
                           " that is out of range; the largest is about 1.797e308");
  }
  return value;
}

std::string Serialize(const Value& value) {
  std::string out;
  Append(value, out);
  return out;
}

void AppendEscaped(char c, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x20 && c != '"' && c != '\\') {
    out += c;
    return;
  }
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
  }
}

void AppendQuoted(std::string_view s, std::string& out) {
  out += '"';
  for (size_t i = 0; i < s.size();) {
    const unsigned char c = s[i];
    if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
      out += s[i++];
    } else if (c < 0x80) {
      AppendEscaped(s[i++], out);
    } else if (const size_t length = Utf8Length(s, i); length > 0) {
      out.append(s.substr(i, length));
      i += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  out += '"';
}

const Value* Find(const Object& object, std::string_view key) {
  const auto it = object.find(BoostView(key));
  if (it == object.end() || it->value().is_null()) return nullptr;
  return &it->value();
}

absl::StatusOr<int64_t> AsInt(const Value& value, std::string_view name) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double d = value.get_double();
    if (std::floor(d) == d && std::fabs(d) < 9.0e15) return static_cast<int64_t>(d);
  }
  return WrongType(name, "an integer in the 64-bit range", value);
}

absl::StatusOr<double> AsDouble(const Value& value, std::string_view name) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return WrongType(name, "a number", value);
}

absl::StatusOr<bool> AsBool(const Value& value, std::string_view name) {
  if (value.is_bool()) return value.get_bool();
  return WrongType(name, "a boolean", value);
}

absl::StatusOr<std::string_view> AsString(const Value& value, std::string_view name) {
  if (value.is_string()) return View(value.get_string());
  return WrongType(name, "a string", value);
}

absl::StatusOr<const Array*> AsArray(const Value& value, std::string_view name) {
  if (value.is_array()) return &value.get_array();
  return WrongType(name, "a list", value);
}

absl::StatusOr<const Object*> AsObject(const Value& value, std::string_view name) {
  if (value.is_object()) return &value.get_object();
  return WrongType(name, "an object", value);
}

}  // namespace quire::json
