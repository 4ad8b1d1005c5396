#include "common/config/schema.h"

#include <algorithm>

#include "common/check.h"
#include "common/config/store.h"
#include "common/config/yaml_file.h"

namespace quire::config {
namespace {

constexpr std::string_view kVariablePrefix = "QUIRE_";

// "max_model_len" and "max-model-len" are one name.
std::string WithDashes(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

// QUIRE_SERVICE_HOST, QUIRE_PORT=tcp://…, QUIRE_PORT_8000_TCP_ADDR…: Kubernetes sets them in every
// pod of a namespace that has a Service named quire or quire-something.
bool IsKubernetesService(std::string_view name, std::string_view value) {
  const bool url = value.substr(0, 6) == "tcp://" || value.substr(0, 6) == "udp://";
  if (url && name.find("_PORT") != std::string_view::npos) return true;
  if (name.find("_SERVICE_HOST") != std::string_view::npos) return true;
  if (name.find("_SERVICE_PORT") != std::string_view::npos) return true;
  const size_t port = name.find("_PORT_");
  if (port == std::string_view::npos) return false;
  std::string_view rest = name.substr(port + 6);
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  rest.remove_prefix(digits);
  return digits > 0 && (rest.substr(0, 4) == "_TCP" || rest.substr(0, 4) == "_UDP");
}

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> values;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) values.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return values;
}

}  // namespace

std::string VariableName(std::string_view name) {
  std::string variable(kVariablePrefix);
  for (char c : name) {
    if (c == '-') c = '_';
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    variable += c;
  }
  return variable;
}

std::string_view OriginName(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
  }
  return "";
}

const Setting& ParseResult::Find(std::string_view name) const {
  for (const Setting& setting : settings) {
    if (setting.name == name) return setting;
  }
  QUIRE_CHECK_MSG(false, "a setting that the schema lacks was asked for");
}

Environment EnvironmentFromMain(const char* const* envp) {
  Environment environment;
  for (; envp != nullptr && *envp != nullptr; ++envp) {
    const std::string_view line = *envp;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return environment;
}

std::vector<std::string> ArgumentsFromMain(int argc, const char* const* argv) {
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) args.emplace_back(argv[i]);
  return args;
}

Schema::Schema(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)), group_("Settings") {
  Add({.name = "config",
       .help = "YAML file of settings; its keys are the names of these flags.",
       .target = &config_path_,
       .value_name = "FILE"});
}

void Schema::Group(std::string title) { group_ = std::move(title); }

void Schema::Add(Flag flag) {
  QUIRE_CHECK_MSG(FindEntry(flag.name) == nullptr, "a setting was added twice");
  Entry entry;
  entry.group = group_;
  entry.setting.name = flag.name;
  entry.setting.values = TargetText(flag.target);
  if (const Choice* choice = std::get_if<Choice>(&flag.target)) flag.choices = choice->words;
  if (!flag.also.empty()) QUIRE_CHECK(StoreValues(flag, entry.setting.values, flag.name).ok());
  entry.default_text = flag.default_text;
  if (entry.default_text.empty()) {
    for (const std::string& value : entry.setting.values) {
      entry.default_text += (entry.default_text.empty() ? "" : ",") + value;
    }
  }
  entry.flag = std::move(flag);
  entries_.push_back(std::move(entry));
}

void Schema::AddPositional(Flag flag, bool required) {
  positionals_.push_back({std::move(flag), required});
}

Schema::Entry* Schema::FindEntry(std::string_view name) {
  for (Entry& entry : entries_) {
    if (entry.flag.name == name) return &entry;
  }
  return nullptr;
}

std::vector<std::string> Schema::Names() const {
  std::vector<std::string> names = {"help", "version"};
  for (const Entry& entry : entries_) {
    if (entry.flag.hidden) continue;
    names.push_back(entry.flag.name);
    if (std::holds_alternative<bool*>(entry.flag.target)) names.push_back("no-" + entry.flag.name);
  }
  return names;
}

std::string Schema::UnknownName(std::string_view shown, std::string_view name,
                                std::string_view prefix) const {
  const std::string nearest = NearestMatch(name, Names());
  std::string message = "unknown " + std::string(shown);
  if (!nearest.empty()) return message + "; did you mean " + std::string(prefix) + nearest + "?";
  return message + "; see " + program_ + " --help";
}

absl::Status Schema::Give(Entry& entry, const std::string& value, Origin origin,
                          const std::string& where) {
  Setting& setting = entry.setting;
  if (origin < setting.origin) return absl::OkStatus();
  const bool list = std::holds_alternative<std::vector<std::string>*>(entry.flag.target);
  if (origin > setting.origin || !list) setting.values.clear();
  setting.values.push_back(value);
  setting.origin = origin;
  setting.where = where;
  if (setting.values.size() > kMaxListValues) {
    return InvalidArgument(where + ": given more than " + std::to_string(kMaxListValues) +
                           " times");
  }
  return absl::OkStatus();
}

absl::Status Schema::TakeFlag(const std::vector<std::string>& args, size_t& index) {
  const std::string_view arg = args[index];
  const size_t equals = std::min(arg.find('='), arg.size());
  const std::string given(arg.substr(0, equals));
  const std::string name = WithDashes(given.substr(std::min<size_t>(given.size(), 2)));
  const bool has_value = equals < arg.size();
  std::string value = has_value ? std::string(arg.substr(equals + 1)) : "";
  Entry* entry = given.starts_with("--") ? FindEntry(name) : nullptr;
  bool negated = false;
  if (entry == nullptr && name.starts_with("no-")) {
    entry = FindEntry(std::string_view(name).substr(3));
    negated = entry != nullptr && std::holds_alternative<bool*>(entry->flag.target);
    if (!negated) entry = nullptr;
  }
  if (entry == nullptr) return InvalidArgument(UnknownName("flag " + given, name, "--"));
  if (std::holds_alternative<bool*>(entry->flag.target)) {
    if (negated && has_value) return InvalidArgument(given + ": takes no value");
    if (!has_value) value = negated ? "false" : "true";
  } else if (!has_value) {
    if (index + 1 >= args.size() || args[index + 1].starts_with("--")) {
      return InvalidArgument(given + ": needs a value, as in " + given + "=" +
                             ValueName(entry->flag));
    }
    value = args[++index];
  }
  return Give(*entry, value, Origin::kFlag, "--" + entry->flag.name);
}

absl::Status Schema::TakeArguments(const std::vector<std::string>& args, ParseResult& result) {
  std::vector<std::string> positionals;
  bool flags_ended = false;
  for (const std::string& arg : args) {
    if (arg == "--") break;
    result.help |= arg == "--help" || arg == "-h";
    result.version |= arg == "--version";
    result.describe |= arg == "--describe";
  }
  if (result.help || result.version || result.describe) return absl::OkStatus();
  for (size_t i = 0; i < args.size(); ++i) {
    if (!flags_ended && args[i] == "--") {
      flags_ended = true;
    } else if (!flags_ended && (args[i] == "--show-config" || args[i] == "--show-config=json")) {
      result.show_config = true;
      result.show_json = args[i].ends_with("=json");
    } else if (!flags_ended && args[i].size() > 1 && args[i][0] == '-') {
      QUIRE_RETURN_IF_ERROR(TakeFlag(args, i));
    } else {
      positionals.push_back(args[i]);
    }
  }
  return TakePositionals(positionals, !result.show_config);
}

absl::Status Schema::TakePositionals(const std::vector<std::string>& values, bool all_required) {
  const bool takes_rest =
      !positionals_.empty() &&
      std::holds_alternative<std::vector<std::string>*>(positionals_.back().flag.target);
  if (values.size() > positionals_.size() && !takes_rest) {
    return InvalidArgument("unexpected argument '" + values[positionals_.size()] + "'; see " +
                           program_ + " --help");
  }
  for (size_t i = 0; i < positionals_.size(); ++i) {
    const Positional& positional = positionals_[i];
    if (i < values.size() && takes_rest && i + 1 == positionals_.size()) {
      const std::vector<std::string> rest(values.begin() + static_cast<ptrdiff_t>(i), values.end());
      QUIRE_RETURN_IF_ERROR(StoreValues(positional.flag, rest, positional.flag.name));
    } else if (i < values.size()) {
      QUIRE_RETURN_IF_ERROR(StoreValues(positional.flag, {values[i]}, positional.flag.name));
    } else if (positional.required && all_required) {
      return InvalidArgument(positional.flag.name + " is missing; see " + program_ + " --help");
    }
  }
  return absl::OkStatus();
}

absl::Status Schema::TakeEnvironment(const Environment& environment, ParseResult& result) {
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(kVariablePrefix) || IsKubernetesService(variable, value)) continue;
    Entry* entry = nullptr;
    for (Entry& candidate : entries_) {
      if (VariableName(candidate.flag.name) == variable) entry = &candidate;
    }
    if (entry == nullptr) {
      std::vector<std::string> variables;
      for (const Entry& known : entries_) variables.push_back(VariableName(known.flag.name));
      const std::string nearest = NearestMatch(variable, variables);
      result.warnings.push_back("environment variable " + variable + " is unknown and ignored" +
                                (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
      continue;
    }
    if (!std::holds_alternative<std::vector<std::string>*>(entry->flag.target)) {
      QUIRE_RETURN_IF_ERROR(Give(*entry, value, Origin::kEnvironment, variable));
      continue;
    }
    const std::vector<std::string> parts = SplitList(value);
    // A router that should require a key would not.
    if (parts.empty() && entry->flag.secret) {
      return InvalidArgument("environment variable " + variable +
                             ": is set and empty; give it a value, or unset it");
    }
    for (const std::string& part : parts) {
      QUIRE_RETURN_IF_ERROR(Give(*entry, part, Origin::kEnvironment, variable));
    }
  }
  return absl::OkStatus();
}

absl::Status Schema::TakeFile(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<FileSetting> settings, ReadYamlSettings(path));
  for (const FileSetting& setting : settings) {
    const std::string name = WithDashes(setting.key);
    Entry* entry = name == "config" ? nullptr : FindEntry(name);
    if (entry == nullptr) {
      return InvalidArgument(setting.where + ": " +
                             UnknownName("key '" + setting.key + "'", name, ""));
    }
    const bool list = std::holds_alternative<std::vector<std::string>*>(entry->flag.target);
    if (setting.is_list && !list) {
      return InvalidArgument(setting.where + ": " + setting.key + " takes one value, not a list");
    }
    for (const std::string& value : setting.values) {
      QUIRE_RETURN_IF_ERROR(Give(*entry, value, Origin::kFile, setting.where));
    }
  }
  return absl::OkStatus();
}

absl::Status Schema::Store() {
  for (Entry& entry : entries_) {
    const Setting& setting = entry.setting;
    if (setting.origin == Origin::kDefault) continue;
    // A line of a file is a place, not a name: the message includes the key too.
    const std::string shown =
        setting.origin == Origin::kFile ? setting.where + ": " + setting.name : setting.where;
    QUIRE_RETURN_IF_ERROR(StoreValues(entry.flag, setting.values, shown));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParseResult> Schema::Parse(const std::vector<std::string>& args,
                                          const Environment& environment) {
  ParseResult result;
  QUIRE_RETURN_IF_ERROR(TakeArguments(args, result));
  if (result.help || result.version || result.describe) return result;
  QUIRE_RETURN_IF_ERROR(TakeEnvironment(environment, result));
  const Setting& config = FindEntry("config")->setting;
  if (config.origin != Origin::kDefault) QUIRE_RETURN_IF_ERROR(TakeFile(config.values.back()));
  QUIRE_RETURN_IF_ERROR(Store());
  for (const Entry& entry : entries_) {
    result.settings.push_back(entry.setting);
    if (entry.flag.secret && entry.setting.origin != Origin::kDefault) {
      result.settings.back().values = {"(not shown)"};
    }
  }
  return result;
}

}  // namespace quire::config
