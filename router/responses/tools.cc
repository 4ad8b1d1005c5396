#include "router/responses/tools.h"

#include <algorithm>
#include <set>
#include <vector>

#include "router/core/result.h"

namespace quire::responses {
namespace {

using json::Value;

// Tools that run at OpenAI, or that its models alone know by heart.
constexpr std::string_view kBuiltIn[] = {"web_search",
                                         "web_search_preview",
                                         "web_search_2025_08_26",
                                         "file_search",
                                         "code_interpreter",
                                         "computer",
                                         "computer_use",
                                         "computer_use_preview",
                                         "image_generation",
                                         "local_shell",
                                         "shell",
                                         "mcp",
                                         "apply_patch",
                                         "tool_search",
                                         "programmatic_tool_calling",
                                         "web_search_preview_2025_03_11"};

bool IsBuiltIn(std::string_view type) {
  return std::find(std::begin(kBuiltIn), std::end(kBuiltIn), type) != std::end(kBuiltIn);
}

struct Tool {
  std::string shown;
  std::string description;
  std::string parameters;
  bool strict = false;
};

void Append(const Tool& tool, std::string& out) {
  out += out.empty() ? "[" : ",";
  out += "{\"type\":\"function\",\"function\":{\"name\":";
  json::AppendQuoted(tool.shown, out);
  if (!tool.description.empty()) {
    out += ",\"description\":";
    json::AppendQuoted(tool.description, out);
  }
  out += ",\"parameters\":" + tool.parameters;
  if (tool.strict) out += ",\"strict\":true";
  out += "}}";
}

class Reader {
 public:
  explicit Reader(ToolSet& out) : out_(out) {}

  FieldError Read(const Value& tool, const std::string& where) {
    if (!tool.is_object()) return InvalidField(where, "must be an object with a type");
    const json::Object& object = tool.get_object();
    const std::string_view type = TextMember(object, "type");
    if (type == "function") return Function(object, where, {});
    if (type == "custom") return Custom(object, where, {});
    if (type == "namespace") return Namespace(object, where);
    if (!IsBuiltIn(type)) {
      return InvalidField(where + ".type",
                          "\"" + std::string(type.substr(0, 64)) +
                              "\" is no type of tool that is served; use \"function\", \"custom\" "
                              "or \"namespace\"");
    }
    ++out_.left_out;
    return std::nullopt;
  }

 private:
  FieldError Add(Tool tool, ToolName name, const std::string& where) {
    const auto [at, is_new] = out_.names.emplace(tool.shown, std::move(name));
    if (!is_new) {
      return InvalidField(where + ".name", "\"" + at->first.substr(0, 64) + "\" came before");
    }
    Append(tool, out_.json);
    return std::nullopt;
  }

  static FieldError CheckName(std::string_view name, const std::string& where) {
    if (!name.empty() && name.size() <= kMaxNameBytes) return std::nullopt;
    return InvalidField(where + ".name",
                        "must be a name of 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  }

  FieldError Function(const json::Object& object, const std::string& where,
                      std::string_view space) {
    const std::string_view name = TextMember(object, "name");
    if (auto problem = CheckName(name, where)) return problem;
    Tool tool{ShownName(space, name), std::string(TextMember(object, "description")), {}, false};
    const Value* parameters = json::Find(object, "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      return InvalidField(where + ".parameters", "must be a JSON schema, an object");
    }
    tool.parameters = parameters != nullptr ? json::Serialize(*parameters)
                                            : "{\"type\":\"object\",\"properties\":{}}";
    if (const Value* strict = json::Find(object, "strict")) {
      if (auto problem = ReadBool(*strict, where + ".strict", tool.strict)) return problem;
    }
    return Add(std::move(tool), {std::string(name), std::string(space), false}, where);
  }

  FieldError Custom(const json::Object& object, const std::string& where, std::string_view space) {
    const std::string_view name = TextMember(object, "name");
    if (auto problem = CheckName(name, where)) return problem;
    Tool tool{ShownName(space, name), std::string(TextMember(object, "description")), {}, false};
    std::string pattern;
    if (const Value* format = json::Find(object, "format")) {
      if (auto problem = Format(*format, where + ".format", tool.description, pattern)) {
        return problem;
      }
    }
    tool.parameters = "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"" +
                      pattern + "}},\"required\":[\"input\"],\"additionalProperties\":false}";
    return Add(std::move(tool), {std::string(name), std::string(space), true}, where);
  }

  // The model reads the grammar as a part of the description. A regular expression becomes a
  // member of the input's schema, too.
  static FieldError Format(const Value& format, const std::string& where, std::string& description,
                           std::string& pattern) {
    if (!format.is_object()) return InvalidField(where, "must be an object with a type");
    const json::Object& object = format.get_object();
    const std::string_view type = TextMember(object, "type");
    if (type == "text") return std::nullopt;
    if (type != "grammar") {
      return InvalidField(where + ".type", "must be \"text\" or \"grammar\"");
    }
    const std::string_view syntax = TextMember(object, "syntax");
    if (syntax != "lark" && syntax != "regex") {
      return InvalidField(where + ".syntax", "must be \"lark\" or \"regex\"");
    }
    const std::string_view definition = TextMember(object, "definition");
    if (definition.empty()) return InvalidField(where + ".definition", "must be a text");
    if (!description.empty()) description += "\n\n";
    description += syntax == "lark" ? "`input` follows this Lark grammar:\n"
                                    : "`input` matches this regular expression:\n";
    description += definition;
    if (syntax == "regex") {
      pattern = ",\"pattern\":";
      json::AppendQuoted("^(?:" + std::string(definition) + ")$", pattern);
    }
    return std::nullopt;
  }

  FieldError Namespace(const json::Object& object, const std::string& where) {
    const std::string_view space = TextMember(object, "name");
    if (auto problem = CheckName(space, where)) return problem;
    const Value* tools = json::Find(object, "tools");
    if (tools == nullptr || !tools->is_array()) {
      return InvalidField(where + ".tools", "must be a list of functions");
    }
    size_t index = 0;
    for (const Value& tool : tools->get_array()) {
      const std::string place = where + ".tools[" + std::to_string(index++) + "]";
      if (!tool.is_object()) return InvalidField(place, "must be an object with a type");
      const std::string_view type = TextMember(tool.get_object(), "type");
      FieldError problem;
      if (type == "function") {
        problem = Function(tool.get_object(), place, space);
      } else if (type == "custom") {
        problem = Custom(tool.get_object(), place, space);
      } else {
        problem = InvalidField(place + ".type", "must be \"function\" or \"custom\"");
      }
      if (problem) return problem;
    }
    return std::nullopt;
  }

  ToolSet& out_;
};

// The shown name of what a choice names. An error names the part that no model here can call.
FieldError Choose(const json::Object& object, const ToolSet& tools, const std::string& where,
                  std::string& shown) {
  const std::string_view type = TextMember(object, "type");
  if (IsBuiltIn(type)) {
    return InvalidField(where, "demands the built-in tool \"" + std::string(type) +
                                   "\", which is not served; only functions and custom tools are");
  }
  if (type != "function" && type != "custom") {
    return InvalidField(where + ".type", "must be \"function\" or \"custom\"");
  }
  shown = ShownName(TextMember(object, "namespace"), TextMember(object, "name"));
  if (tools.names.contains(shown)) return std::nullopt;
  return InvalidField(where + ".name",
                      "\"" + shown.substr(0, 64) + "\" is no function or custom tool of tools");
}

// Keeps the chosen ones of the list, as they are.
void KeepOnly(const std::set<std::string, std::less<>>& chosen, ToolSet& tools) {
  const absl::StatusOr<Value> all = json::Parse(tools.json);
  std::string kept;
  for (const Value& tool : all->get_array()) {
    const auto& function = tool.get_object().at("function").get_object();
    const std::string_view name = TextMember(function, "name");
    if (!chosen.contains(name)) continue;
    kept += kept.empty() ? "[" : ",";
    kept += json::Serialize(tool);
  }
  tools.json = std::move(kept);
  if (!tools.json.empty()) tools.json += ']';
  std::erase_if(tools.names, [&](const auto& entry) { return !chosen.contains(entry.first); });
}

FieldError ReadAllowed(const json::Object& object, ToolSet& tools, ToolUse& out) {
  const std::string_view mode = TextMember(object, "mode");
  if (mode != "auto" && mode != "required") {
    return InvalidField("tool_choice.mode", "must be \"auto\" or \"required\"");
  }
  const Value* list = json::Find(object, "tools");
  if (list == nullptr || !list->is_array()) {
    return InvalidField("tool_choice.tools", "must be a list of tools");
  }
  std::set<std::string, std::less<>> chosen;
  size_t index = 0;
  for (const Value& one : list->get_array()) {
    const std::string where = "tool_choice.tools[" + std::to_string(index++) + "]";
    if (!one.is_object()) return InvalidField(where, "must be an object with a type");
    if (IsBuiltIn(TextMember(one.get_object(), "type"))) continue;  // allowed, and not demanded
    std::string shown;
    if (auto problem = Choose(one.get_object(), tools, where, shown)) return problem;
    chosen.insert(std::move(shown));
  }
  if (mode == "required" && chosen.empty()) {
    return InvalidField("tool_choice.tools",
                        "holds no function or custom tool, and mode demands a "
                        "call; only these are served");
  }
  if (!tools.json.empty()) KeepOnly(chosen, tools);
  out.choice = mode == "required" ? ToolChoice::kRequired : ToolChoice::kAuto;
  return std::nullopt;
}

}  // namespace

std::string ShownName(std::string_view space, std::string_view name) {
  std::string shown(space);
  if (!space.empty()) shown += "__";
  return shown.append(name);
}

FieldError ReadTools(const Value& value, ToolSet& out) {
  if (!value.is_array()) return InvalidField("tools", "must be a list of tools");
  Reader reader(out);
  size_t index = 0;
  for (const Value& tool : value.get_array()) {
    const std::string where = "tools[" + std::to_string(index++) + "]";
    if (auto problem = reader.Read(tool, where)) return problem;
  }
  if (!out.json.empty()) out.json += ']';
  return std::nullopt;
}

FieldError ReadToolChoice(const Value& value, ToolSet& tools, ToolUse& out) {
  constexpr std::string_view kField = "tool_choice";
  if (value.is_object()) {
    if (TextMember(value.get_object(), "type") == "allowed_tools") {
      return ReadAllowed(value.get_object(), tools, out);
    }
    out.choice = ToolChoice::kNamed;
    return Choose(value.get_object(), tools, std::string(kField), out.name);
  }
  const std::string_view word =
      value.is_string() ? json::View(value.get_string()) : std::string_view();
  if (word == "auto") {
    out.choice = ToolChoice::kAuto;
  } else if (word == "none") {
    out.choice = ToolChoice::kNone;
  } else if (word == "required") {
    if (tools.json.empty()) {
      return InvalidField(kField, "\"required\" needs a function or a custom tool in tools");
    }
    out.choice = ToolChoice::kRequired;
  } else {
    return InvalidField(kField,
                        "must be \"auto\", \"none\", \"required\" or an object that names "
                        "a tool");
  }
  return std::nullopt;
}

std::string CustomArguments(std::string_view input) {
  std::string out = "{\"input\":";
  json::AppendQuoted(input, out);
  return out + '}';
}

std::string CustomInput(std::string_view arguments) {
  const absl::StatusOr<Value> read = json::Parse(arguments);
  if (read.ok() && read->is_object() && read->get_object().size() == 1) {
    const Value& only = read->get_object().begin()->value();
    if (only.is_string()) return std::string(json::View(only.get_string()));
  }
  return std::string(arguments);
}

}  // namespace quire::responses
