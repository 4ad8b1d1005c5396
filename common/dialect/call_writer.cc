#include "common/dialect/call_writer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/dialect/scan.h"
#include "common/status.h"

namespace quire::dialect {
namespace {

constexpr size_t kMaxNameBytes = 256;
// Of definitions that the parameters of one function repeat, each as far as it refers to them.
constexpr size_t kMaxRepeatedBytes = size_t{128} << 10;
// What is no string, list or object of braced calls.
constexpr std::string_view kPlainBraced =
    "/-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,9})?|true|false|null/";

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

// Where `letter` is a word of its own.
size_t WordAt(std::string_view text, char letter) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool before = i > 0 && (IsLetter(text[i - 1]) && text[i - 1] != '.');
    const bool after = i + 1 < text.size() && IsLetter(text[i + 1]);
    if (text[i] == letter && !before && !after) return i;
  }
  return std::string_view::npos;
}

// The definitions that a function's parameters may refer to.
class Definitions {
 public:
  explicit Definitions(const json::Object* schema) {
    for (const std::string_view key : {"$defs", "definitions"}) {
      const json::Value* found = schema != nullptr ? json::Find(*schema, key) : nullptr;
      if (found == nullptr || !found->is_object()) continue;
      lists_.push_back({key, &found->get_object()});
      bytes_ += json::Serialize(*found).size();
    }
  }

  // Copies them into the schema where it refers to something. False: too much is repeated.
  bool AddTo(json::Object& schema) {
    const bool refers = json::Serialize(json::Value(schema)).find("\"$ref\"") != std::string::npos;
    if (!refers || lists_.empty()) return true;
    repeated_ += bytes_;
    if (repeated_ > kMaxRepeatedBytes) return false;
    for (const auto& [key, list] : lists_) schema[json::BoostView(key)] = *list;
    return true;
  }

 private:
  std::vector<std::pair<std::string_view, const json::Object*>> lists_;
  size_t bytes_ = 0, repeated_ = 0;
};

// The names in a schema's `required`.
std::set<std::string_view> RequiredOf(const json::Object* schema) {
  std::set<std::string_view> names;
  const json::Value* list = schema != nullptr ? json::Find(*schema, "required") : nullptr;
  if (list == nullptr || !list->is_array()) return names;
  for (const json::Value& one : list->get_array()) {
    if (one.is_string()) names.insert(json::View(one.get_string()));
  }
  return names;
}

bool IsTagged(const Dialect& dialect) {
  return dialect.form == Form::kTagged || dialect.form == Form::kNested;
}

// The mark behind a value of `key`.
std::string ValueEnd(const Dialect& dialect, std::string_view key) {
  const std::string end(dialect.tagged.value_end);
  if (dialect.form != Form::kNested) return end;
  return end + std::string(key) + std::string(dialect.tagged.key_end);
}

// What is in the place of the example's arguments.
std::string_view ArgumentsOf(const Dialect& dialect, std::string_view unit) {
  const auto between = [&](std::string_view open, std::string_view close) {
    const size_t from = unit.find(open);
    const size_t to = unit.find(close, from) + close.size();
    return unit.substr(from, to - from);
  };
  switch (dialect.form) {
    case Form::kNested:
    case Form::kTagged: {
      std::string_view found =
          between(std::string(dialect.tagged.key_open) + "a", ValueEnd(dialect, "a"));
      const size_t end = static_cast<size_t>(found.data() - unit.data()) + found.size();
      const bool line = end < unit.size() && unit[end] == '\n';
      return unit.substr(end - found.size(), found.size() + (line ? 1 : 0));
    }
    case Form::kPythonic:
      return between("a=", "1");
    case Form::kBraced: {
      const size_t open = unit.find('{') + 1;
      return unit.substr(open, unit.find('}') - open);
    }
    default:
      return between("{\"a\"", "}");
  }
}

const json::Object* ObjectAt(const json::Object& object, std::string_view key) {
  const json::Value* value = json::Find(object, key);
  return value != nullptr && value->is_object() ? &value->get_object() : nullptr;
}

bool IsStrict(const json::Object& function) {
  const json::Value* strict = json::Find(function, "strict");
  return strict != nullptr && strict->is_bool() && strict->get_bool();
}

// Keywords that the library does not know make a schema wider, unless it is to hold as it is.
std::string JsonItem(json::Object schema, bool strict) {
  if (!strict && !schema.contains("x-guidance")) {
    json::Object options;
    options["lenient"] = true;
    schema["x-guidance"] = std::move(options);
  }
  return "%json " + json::Serialize(json::Value(std::move(schema)));
}

json::Object ParametersSchema(const json::Object& function) {
  const json::Object* given = ObjectAt(function, "parameters");
  json::Object schema = given != nullptr ? *given : json::Object();
  if (!schema.contains("type")) schema["type"] = "object";
  const bool open = schema.contains("additionalProperties") ||
                    schema.contains("patternProperties") || schema.contains("$ref") ||
                    schema.contains("anyOf") || schema.contains("oneOf") ||
                    schema.contains("allOf");
  if (!open) schema["additionalProperties"] = false;
  return schema;
}

// The texts that a string may be; empty: any.
std::vector<std::string> Enumerated(const json::Value& schema) {
  std::vector<std::string> texts;
  if (!schema.is_object()) return texts;
  const json::Value* list = json::Find(schema.get_object(), "enum");
  const json::Value* constant = json::Find(schema.get_object(), "const");
  if (constant != nullptr && constant->is_string()) {
    texts.emplace_back(json::View(constant->get_string()));
  } else if (list != nullptr && list->is_array()) {
    for (const json::Value& one : list->get_array()) {
      if (one.is_string()) texts.emplace_back(json::View(one.get_string()));
    }
  }
  return texts;
}

bool WritesString(TypeSet types) { return types == 0 || (types & kString) != 0; }

}  // namespace

CallWriter::CallWriter(const Dialect& dialect, std::span<const std::string_view> marks, Lark& lark)
    : dialect_(dialect), marks_(marks), lark_(lark), list_(dialect.list) {
  std::string_view example = dialect.example;
  const Mark& separator = dialect.named.separator;
  const bool old_mistral = dialect.form == Form::kEitherJson && separator.special &&
                           lark.IsSpecial(dialect.triggers[0].mark.text) &&
                           !lark.IsSpecial(separator.text);
  if (old_mistral) {  // a tokenizer of the versions that write lists
    example = "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]";
    list_ = {"[TOOL_CALLS][", ", ", "]"};
  }
  example.remove_prefix(list_.open.size());
  example.remove_suffix(list_.close.size());
  if (dialect.form == Form::kPythonic) example = example.substr(0, example.find(')') + 1);
  const std::string_view arguments = ArgumentsOf(dialect, example);
  const size_t at = static_cast<size_t>(arguments.data() - example.data());
  size_t name = WordAt(example, 'f');
  QUIRE_CHECK(name != std::string_view::npos && !arguments.empty());
  swapped_ = at < name;
  const size_t first = swapped_ ? at : name;
  const size_t first_size = swapped_ ? arguments.size() : 1;
  const size_t second = swapped_ ? name : at;
  begin_ = example.substr(0, first);
  middle_ = example.substr(first + first_size, second - first - first_size);
  end_ = example.substr(second + (swapped_ ? 1 : arguments.size()));
  // The end of harmony's call ends the answer.
  if (dialect.form == Form::kChannels) end_.clear();
}

bool CallWriter::MayName(std::string_view name, bool key) const {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  if (key && IsTagged(dialect_)) {
    return name.front() != ' ' && name.back() != ' ' &&
           name.find_first_of("<>\"=\r\n\t") == std::string_view::npos;
  }
  const bool word = dialect_.form == Form::kPythonic || dialect_.form == Form::kBraced;
  return std::all_of(name.begin(), name.end(), [&](char c) {
    const bool plain = (IsLetter(c) && c != '.') || (c >= '0' && c <= '9');
    return plain || (c == '.' && !name.starts_with('.')) ||
           (!word && (c == '-' || c == ':' || c == '/'));
  });
}

absl::StatusOr<std::vector<CallWriter::Parameter>> CallWriter::ParametersOf(
    const json::Object& function, const ToolTypes& types) const {
  const std::string_view function_name = json::View(json::Find(function, "name")->get_string());
  std::vector<Parameter> parameters;
  const json::Object* schema = ObjectAt(function, "parameters");
  const json::Object* properties = schema ? ObjectAt(*schema, "properties") : nullptr;
  const std::set<std::string_view> required = RequiredOf(schema);
  Definitions definitions(schema);
  for (size_t i = 0; properties != nullptr && i < properties->size(); ++i) {
    const auto& member = *(properties->begin() + static_cast<ptrdiff_t>(i));
    Parameter parameter;
    parameter.name = std::string(member.key().data(), member.key().size());
    parameter.types = types.Of(function_name, parameter.name);
    parameter.schema = member.value().is_object() ? member.value() : json::Object();
    if (!definitions.AddTo(parameter.schema.get_object())) {
      return InvalidArgument("tools: the definitions that parameters of " +
                             std::string(function_name) + " refer to have more than " +
                             std::to_string(kMaxRepeatedBytes) +
                             " bytes, counted for each; write them out where they are used");
    }
    parameter.required = required.contains(parameter.name);
    if (!MayName(parameter.name, true)) {
      if (!parameter.required) continue;
      return InvalidArgument("tools: parameter \"" + parameter.name + "\" of " +
                             std::string(function_name) + " cannot be named in dialect " +
                             std::string(dialect_.name));
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

absl::StatusOr<std::string> CallWriter::Write(const json::Object& function, const ToolTypes& types,
                                              std::string_view skip) {
  const std::string_view name = json::View(json::Find(function, "name")->get_string());
  if (!MayName(name, false)) {
    return InvalidArgument("tools: function \"" + std::string(name.substr(0, kMaxNameBytes)) +
                           "\" cannot be named in dialect " + std::string(dialect_.name));
  }
  const bool own =
      IsTagged(dialect_) || dialect_.form == Form::kPythonic || dialect_.form == Form::kBraced;
  std::string arguments;
  if (own) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, ParametersOf(function, types));
    arguments = IsTagged(dialect_) ? Tagged(parameters) : Literals(parameters);
  } else {
    arguments = lark_.Rule(JsonItem(ParametersSchema(function), IsStrict(function)));
  }
  QUIRE_CHECK(std::string_view(begin_).starts_with(skip));
  const std::string begin = begin_.substr(skip.size());
  const std::string named(name);
  std::string out;
  if (swapped_) {
    out = (begin.empty() ? "" : lark_.Text(begin) + " ") + arguments + " " +
          lark_.Text(middle_ + named + end_);
    return out;
  }
  // Kimi numbers its calls behind their names.
  std::string middle = middle_;
  if (dialect_.named.numbered && middle.starts_with(":0")) {
    out = lark_.Text(begin + named + ":") + " " + lark_.Terminal("/[0-9]{1,3}/") + " ";
    middle.erase(0, 2);
    out += lark_.Text(middle);
  } else {
    out = lark_.Text(begin + named + middle);
  }
  if (!arguments.empty()) out += " " + arguments;
  if (!end_.empty()) out += " " + lark_.Text(end_);
  return out;
}

// ---------------------------------------------------------------------------------------- tags

std::string CallWriter::Tagged(const std::vector<Parameter>& parameters) {
  std::string out;
  for (const Parameter& parameter : parameters) {
    if (!out.empty()) out += ' ';
    const std::string rule = lark_.Rule(TaggedParameter(parameter));
    out += parameter.required ? rule : rule + "?";
  }
  return out;
}

std::string CallWriter::TaggedParameter(const Parameter& parameter) {
  const TaggedKeys& form = dialect_.tagged;
  const bool text = WritesString(parameter.types);
  // As the example has it: one newline on each side, or none.
  const bool lines = dialect_.example.find(std::string(form.key_end) + "\n1") != std::string::npos;
  std::string head = std::string(form.key_open) + parameter.name + std::string(form.key_end);
  if (form.typed) head += text ? " string=\"true\">" : " string=\"false\">";
  if (!form.value_open.empty()) head += "\n" + std::string(form.value_open);
  if (lines) head += '\n';
  const std::string tail = (lines ? "\n" : "") + ValueEnd(dialect_, parameter.name);
  std::string out = lark_.Text(head) + " ";
  if (text) {
    out += TaggedText(parameter, tail);
  } else {
    out += JsonItem(parameter.schema.get_object(), false) + " " + lark_.Text(tail);
  }
  return dialect_.form == Form::kNested ? out : out + " \"\\n\"";
}

std::string CallWriter::TaggedText(const Parameter& parameter, std::string_view tail) {
  const std::vector<std::string> texts =
      parameter.types == kString ? Enumerated(parameter.schema) : std::vector<std::string>();
  if (!texts.empty()) {
    std::string options;
    for (const std::string& one : texts) {
      options += (options.empty() ? "(" : " | ") + lark_.Text(one);
    }
    return options + ") " + lark_.Text(tail);
  }
  std::vector<std::string_view> marks(marks_.begin(), marks_.end());
  for (const Mark& mark : dialect_.closers) marks.push_back(mark.text);
  marks.push_back(dialect_.tagged.key_open);
  marks.push_back(dialect_.tagged.value_end);
  // The tail holds the value's end itself.
  return lark_.UpTo(tail, marks);
}

// ------------------------------------------------------------------------------------ literals

// Parts between commas; some may be left out.
std::string CallWriter::Literals(const std::vector<Parameter>& parameters) {
  const bool python = dialect_.form == Form::kPythonic;
  const std::string comma = python ? "\", \"" : "\",\"";
  std::vector<std::string> required, optional;
  for (const Parameter& parameter : parameters) {
    const std::string key = LarkString(parameter.name + (python ? "=" : ":"));
    const std::string value =
        python ? JsonItem(parameter.schema.get_object(), false) : Braced(parameter);
    (parameter.required ? required : optional).push_back(lark_.Rule(key + " " + value));
  }
  std::string out;
  for (const std::string& part : required) out += (out.empty() ? "" : " " + comma + " ") + part;
  if (!required.empty()) {
    for (const std::string& part : optional) out += " (" + comma + " " + part + ")?";
    return out;
  }
  // Behind any of them the later ones may follow.
  std::string later;
  std::string options;
  for (size_t i = optional.size(); i-- > 0;) {
    options += (options.empty() ? "" : " | ") + optional[i] + (later.empty() ? "" : " " + later);
    later = lark_.Rule("(" + comma + " " + optional[i] + ")?" + (later.empty() ? "" : " " + later));
  }
  return options.empty() ? "" : "(" + options + ")?";
}

std::string CallWriter::BracedText() {
  const std::string_view quote[] = {dialect_.quote.text};
  const std::string mark = lark_.Text(dialect_.quote.text);
  return mark + " " + lark_.Free(quote) + " " + mark;
}

// Rules of any list and any object.
void CallWriter::WriteBraced() {
  if (!braced_list_.empty()) return;
  const std::string text = lark_.Rule(BracedText());
  const std::string plain = lark_.Terminal(kPlainBraced);
  const std::string key = lark_.Terminal("/[A-Za-z_][A-Za-z0-9_]{0,63}/");
  const std::string value = lark_.NextRule();
  const std::string pair = key + " \":\" " + value;
  const std::string object = "\"{\" (" + pair + " (\",\" " + pair + ")*)? \"}\"";
  const std::string list = "\"[\" (" + value + " (\",\" " + value + ")*)? \"]\"";
  const std::string written = lark_.Rule(text + " | " + plain + " | " + object + " | " + list);
  QUIRE_CHECK(written == value);
  braced_object_ = lark_.Rule(object);
  braced_list_ = lark_.Rule(list);
}

std::string CallWriter::Braced(const Parameter& parameter) {
  constexpr TypeSet kPlain = kInteger | kNumber | kBoolean | kNull;
  const std::vector<std::string> texts = Enumerated(parameter.schema);
  if (parameter.types == kString && !texts.empty()) {
    std::string options;
    for (const std::string& one : texts) {
      options +=
          (options.empty() ? "(" : " | ") +
          lark_.Text(std::string(dialect_.quote.text) + one + std::string(dialect_.quote.text));
    }
    return options + ")";
  }
  if (parameter.types == kString || parameter.types == 0) return BracedText();
  if ((parameter.types & ~kPlain) == 0) return JsonItem(parameter.schema.get_object(), false);
  WriteBraced();
  std::string options;
  const auto may = [&](TypeSet types, const std::string& item) {
    if ((parameter.types & types) != 0) options += (options.empty() ? "(" : " | ") + item;
  };
  may(kString, BracedText());
  may(kPlain, lark_.Terminal(kPlainBraced));
  may(kArray, braced_list_);
  may(kObject, braced_object_);
  return options + ")";
}

}  // namespace quire::dialect
