#include "common/config/describe.h"

#include <algorithm>

#include "common/json/json.h"

namespace quire::config {
namespace {

json::Array ArrayOf(const std::vector<std::string>& texts) {
  json::Array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

std::string TextAt(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  const json::String* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? std::string() : std::string(json::View(*text));
}

bool BoolAt(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::vector<std::string> TextsAt(const json::Object& object, std::string_view name) {
  std::vector<std::string> texts;
  const json::Value* value = json::Find(object, name);
  const json::Array* array = value == nullptr ? nullptr : value->if_array();
  if (array == nullptr) return texts;
  for (const json::Value& item : *array) {
    if (const json::String* text = item.if_string()) texts.emplace_back(json::View(*text));
  }
  return texts;
}

// The objects of an array; others are passed over.
std::vector<const json::Object*> ObjectsAt(const json::Object& object, std::string_view name) {
  std::vector<const json::Object*> objects;
  const json::Value* value = json::Find(object, name);
  const json::Array* array = value == nullptr ? nullptr : value->if_array();
  if (array == nullptr) return objects;
  for (const json::Value& item : *array) {
    if (const json::Object* member = item.if_object()) objects.push_back(member);
  }
  return objects;
}

const FlagDescription* FlagOf(const Description& description, std::string_view name) {
  for (const FlagDescription& flag : description.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string Joined(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ",") + text;
  return joined;
}

}  // namespace

std::string DescriptionJson(const Description& description) {
  json::Object object;
  object["program"] = description.program;
  object["summary"] = description.summary;
  json::Array arguments;
  for (const ArgumentDescription& argument : description.arguments) {
    json::Object line;
    line["name"] = argument.name;
    line["help"] = argument.help;
    line["choices"] = ArrayOf(argument.choices);
    line["required"] = argument.required;
    arguments.emplace_back(std::move(line));
  }
  object["arguments"] = std::move(arguments);
  json::Array flags;
  for (const FlagDescription& flag : description.flags) {
    json::Object line;
    line["name"] = flag.name;
    line["group"] = flag.group;
    line["help"] = flag.help;
    line["value"] = flag.value_name;
    line["default"] = flag.default_text;
    line["choices"] = ArrayOf(flag.choices);
    line["repeatable"] = flag.repeatable;
    line["secret"] = flag.secret;
    flags.emplace_back(std::move(line));
  }
  object["flags"] = std::move(flags);
  return json::Serialize(object);
}

absl::StatusOr<Description> ParseDescription(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text));
  const json::Object* object = value.if_object();
  if (object == nullptr) return InvalidArgument("the description must be an object");
  Description description{TextAt(*object, "program"), TextAt(*object, "summary"), {}, {}};
  if (description.program.empty()) return InvalidArgument("the description names no program");
  for (const json::Object* line : ObjectsAt(*object, "arguments")) {
    description.arguments.push_back({TextAt(*line, "name"), TextAt(*line, "help"),
                                     TextsAt(*line, "choices"), BoolAt(*line, "required")});
  }
  for (const json::Object* line : ObjectsAt(*object, "flags")) {
    description.flags.push_back({TextAt(*line, "name"), TextAt(*line, "group"),
                                 TextAt(*line, "help"), TextAt(*line, "value"),
                                 TextAt(*line, "default"), TextsAt(*line, "choices"),
                                 BoolAt(*line, "repeatable"), BoolAt(*line, "secret")});
  }
  return description;
}

std::string SettingsTable(const Description& description, const ParseResult& parsed) {
  struct Row {
    std::string name, value, origin, where;
  };
  std::vector<Row> rows = {{"NAME", "VALUE", "ORIGIN", "WHERE"}};
  for (const Setting& setting : parsed.settings) {
    const FlagDescription* flag = FlagOf(description, setting.name);
    if (flag == nullptr) continue;  // hidden
    std::string value = Joined(setting.values);
    if (setting.origin == Origin::kDefault && !flag->default_text.empty()) {
      value = flag->default_text;
    }
    rows.push_back({setting.name, value.empty() ? "-" : value,
                    std::string(OriginName(setting.origin)), setting.where});
  }
  constexpr size_t kWidestValue = 48;  // a longer one pushes its own line only
  size_t name_width = 0, value_width = 0;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    value_width = std::max(value_width, std::min(row.value.size(), kWidestValue));
  }
  std::string out;
  const auto padded = [](std::string text, size_t width) {
    text.append(width > text.size() ? width - text.size() : 0, ' ');
    return text + "  ";
  };
  for (const Row& row : rows) {
    std::string line = padded(row.name, name_width) + padded(row.value, value_width) +
                       padded(row.origin, std::string_view("environment").size()) + row.where;
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string SettingsJson(const Description& description, const ParseResult& parsed) {
  json::Array settings;
  for (const Setting& setting : parsed.settings) {
    const FlagDescription* flag = FlagOf(description, setting.name);
    if (flag == nullptr) continue;
    json::Object line;
    line["name"] = setting.name;
    if (flag->repeatable) {
      line["value"] = ArrayOf(setting.values);
    } else if (setting.values.empty()) {
      line["value"] = nullptr;
    } else {
      line["value"] = setting.values.back();
    }
    line["default"] = flag->default_text;
    line["origin"] = std::string(OriginName(setting.origin));
    line["where"] = setting.where;
    settings.emplace_back(std::move(line));
  }
  json::Object object;
  object["program"] = description.program;
  object["settings"] = std::move(settings);
  return json::Serialize(object);
}

std::optional<std::string> AnswerText(const Schema& schema, const ParseResult& parsed) {
  if (parsed.help) return schema.HelpText();
  if (parsed.version) return schema.Describe().program + " " + QUIRE_VERSION + "\n";
  if (parsed.describe) return DescriptionJson(schema.Describe()) + "\n";
  if (!parsed.show_config) return std::nullopt;
  if (parsed.show_json) return SettingsJson(schema.Describe(), parsed) + "\n";
  return SettingsTable(schema.Describe(), parsed);
}

}  // namespace quire::config
