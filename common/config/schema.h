// One schema for flags, environment and file: the settings of a program, from whichever source.
//
// Why not CLI11: it has no YAML, no nearest match and no record of where a value came from, and its
// errors are exceptions; all that would be left of it is splitting "--name=value".
//
// Built and used once, in main, before other threads exist.
//  1. Precedence: flag, then environment, then file, then default. A list is replaced as a whole.
//  2. An unknown flag or file key is an error with its nearest match; an unknown QUIRE_ variable is
//     only a warning, and what Kubernetes injects for a Service named quire is ignored.
//  3. Parse writes to the fields only values that passed their checks; on an error they are
//     unspecified.
//  4. Environment and arguments come in as data: nothing here reads the process's own.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/config/target.h"
#include "common/status.h"

namespace quire::config {

inline constexpr size_t kMaxConfigFileBytes = 1u << 20;

struct Flag {
  std::string name =
      {};  // "max-model-len": --max-model-len, QUIRE_MAX_MODEL_LEN, key max-model-len
  std::string help = {};  // one or two sentences
  Target target = {};
  std::vector<Target> also = {};  // other fields that always have the target's value
  std::string value_name = {};    // in --help; by the target's type when empty
  // Inclusive; for numbers, for Bytes in bytes, for Duration in milliseconds. Unset bounds are the
  // type's own.
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  std::vector<std::string> choices = {};  // for a string; empty is any, or those of OneOf
  std::string default_text = {};  // shown in place of the field's value ("all that are allowed")
  bool hidden = false;            // not in --help
  bool secret = false;            // its value is never shown
};

// The contents of a schema, as data: help, manuals and shell completions are made from it.
struct FlagDescription {
  std::string name;
  std::string group;
  std::string help;
  std::string value_name;  // empty: a bool flag
  std::string default_text;
  std::vector<std::string> choices;
  bool repeatable = false;
  bool secret = false;  // as Flag's
};
struct ArgumentDescription {
  std::string name;
  std::string help;
  std::vector<std::string> choices;
  bool required = false;
};
struct Description {
  std::string program;  // "quire serve"
  std::string summary;
  std::vector<ArgumentDescription> arguments;
  std::vector<FlagDescription> flags;  // those that --help lists, in its order
};

enum class Origin { kDefault, kFile, kEnvironment, kFlag };
std::string_view OriginName(Origin origin);

// The final value of a setting.
struct Setting {
  std::string name;
  std::vector<std::string> values;  // as text; several only for a list
  Origin origin = Origin::kDefault;
  std::string where;  // "--name", "QUIRE_NAME", "file.yaml:3", or ""
};

struct ParseResult {
  bool help = false;                  // --help was given: print HelpText and exit with 0
  bool version = false;               // --version was given
  bool describe = false;              // --describe was given: the schema itself, as JSON
  bool show_config = false;           // --show-config was given: the settings and their sources
  bool show_json = false;             // the same, as --show-config=json
  std::vector<Setting> settings;      // in the order of Add
  std::vector<std::string> warnings;  // one line each

  // The setting `name`, which the schema has.
  const Setting& Find(std::string_view name) const;
  bool IsSet(std::string_view name) const { return Find(name).origin != Origin::kDefault; }
};

using Environment = std::map<std::string, std::string>;

// The third argument of main, or an empty one.
Environment EnvironmentFromMain(const char* const* envp);
std::vector<std::string> ArgumentsFromMain(int argc,
                                           const char* const* argv);  // without the program

// "max-model-len": QUIRE_MAX_MODEL_LEN.
std::string VariableName(std::string_view flag);

class Schema {
 public:
  // `program` is its name on the command line ("quire-worker", "quire serve"), `summary` is one
  // sentence.
  Schema(std::string program, std::string summary);

  // Settings added from here on are listed under this title in --help.
  void Group(std::string title);
  // Aborts on a name that was added before: that is our own bug. The target outlives Parse.
  void Add(Flag flag);
  // An argument without a name, in order of adding. Flag.name is its name in help ("MODEL"); it is
  // read from the command line alone. The last one takes all that are left, if its target is a
  // list.
  void AddPositional(Flag flag, bool required);

  // `args` without the program's name. Reads the file that --config (QUIRE_CONFIG) names. Errors
  // are INVALID_ARGUMENT, one line that names the flag, variable or file:line and what would be
  // right. With
  // --help, --version or --describe nothing else is checked.
  absl::StatusOr<ParseResult> Parse(const std::vector<std::string>& args,
                                    const Environment& environment);

  std::string HelpText() const;
  Description Describe() const;

 private:
  struct Entry {
    Flag flag;
    std::string group;
    std::string default_text;
    Setting setting;
  };
  struct Positional {
    Flag flag;
    bool required = false;
  };

  // Titles in the order of --help.
  std::vector<std::string> Groups() const;
  Entry* FindEntry(std::string_view name);
  std::vector<std::string> Names() const;
  // Overwrites the value of a weaker source; a list grows within one source.
  absl::Status Give(Entry& entry, const std::string& value, Origin origin,
                    const std::string& where);
  absl::Status TakeArguments(const std::vector<std::string>& args, ParseResult& result);
  absl::Status TakeFlag(const std::vector<std::string>& args, size_t& index);
  absl::Status TakeEnvironment(const Environment& environment, ParseResult& result);
  absl::Status TakeFile(const std::string& path);
  absl::Status TakePositionals(const std::vector<std::string>& values, bool all_required);
  absl::Status Store();
  std::string UnknownName(std::string_view shown, std::string_view name,
                          std::string_view prefix) const;

  std::string program_;
  std::string summary_;
  std::string group_;
  std::string config_path_;
  std::vector<Entry> entries_;
  std::vector<Positional> positionals_;
};

}  // namespace quire::config
