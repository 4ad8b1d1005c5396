// Completion scripts, and `quire completion`, which writes them.
#include <cstdio>

#include "cli/commands.h"
#include "cli/manual/descriptions.h"

namespace quire::cli {
namespace {

using config::ArgumentDescription;
using config::Description;
using config::FlagDescription;

constexpr std::string_view kModelNames = "quire models 2>/dev/null | awk 'NR > 1 { print $1 }'";

// "serve" of "quire serve", "quire-router" of itself.
std::string ShortName(const Description& program) {
  constexpr std::string_view kStart = "quire ";
  return program.program.starts_with(kStart) ? program.program.substr(kStart.size())
                                             : program.program;
}

bool IsCommand(const Description& program) { return program.program.starts_with("quire "); }

bool TakesPath(const FlagDescription& flag) {
  return flag.value_name.find("FILE") != std::string::npos ||
         flag.value_name.find("DIR") != std::string::npos || flag.name.ends_with("-dir") ||
         flag.name == "cacert";
}

bool TakesModel(const Description& program) {
  for (const ArgumentDescription& argument : program.arguments) {
    if (argument.name == "MODEL") return true;
  }
  return false;
}

std::string Words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::vector<std::string> FlagWords(const Description& program) {
  std::vector<std::string> words = {"--help", "--version"};
  for (const FlagDescription& flag : program.flags) {
    words.push_back("--" + flag.name);
    if (flag.value_name.empty()) words.push_back("--no-" + flag.name);
  }
  return words;
}

std::vector<std::string> CommandNames(const std::vector<Description>& programs) {
  std::vector<std::string> names = {"help", "version"};
  for (const Description& program : programs) {
    if (IsCommand(program)) names.push_back(ShortName(program));
  }
  return names;
}

std::vector<std::string> ArgumentWords(const Description& program) {
  std::vector<std::string> words;
  for (const ArgumentDescription& argument : program.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
  }
  return words;
}

// Inside single quotes of a shell.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string FirstSentence(const std::string& help) {
  const size_t end = help.find_first_of(".;");
  return help.substr(0, end);
}

std::string BashScript(const std::vector<Description>& programs) {
  std::string values, flags, arguments;
  for (const Description& program : programs) {
    const std::string name = ShortName(program);
    for (const FlagDescription& flag : program.flags) {
      if (flag.value_name.empty()) continue;
      const std::string at = "    " + name + ":--" + flag.name + ") ";
      if (!flag.choices.empty()) {
        values += at + "COMPREPLY=($(compgen -W " + Quoted(Words(flag.choices)) +
                  " -- \"$cur\")); return ;;\n";
      } else if (TakesPath(flag)) {
        values += at + "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n";
      } else {
        values += at + "return ;;\n";
      }
    }
    flags += "    " + name + ") words=" + Quoted(Words(FlagWords(program))) + " ;;\n";
    const std::string start = "    " + name + ") words=";
    if (TakesModel(program)) {
      arguments += start + "$(" + std::string(kModelNames) + ") files=-f ;;\n";
    } else {
      arguments += start + Quoted(Words(ArgumentWords(program))) + " ;;\n";
    }
  }
  return "# Completion of quire for bash: source <(quire completion bash)\n"
         "_quire() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} name words= "
         "files=\n"
         "  COMPREPLY=()\n"
         "  name=${COMP_WORDS[0]##*/}\n"
         "  # bash cuts --flag=value at its equals sign.\n"
         "  if [ \"$cur\" = = ]; then cur=; elif [ \"$prev\" = = ]; then "
         "prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  if [ \"$name\" = quire ]; then\n"
         "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
         "      COMPREPLY=($(compgen -W " +
         Quoted(Words(CommandNames(programs))) +
         " -- \"$cur\")); return\n"
         "    fi\n"
         "    name=${COMP_WORDS[1]}\n"
         "  fi\n"
         "  case $name:$prev in\n" +
         values +
         "  esac\n"
         "  if [[ $cur == -* ]]; then case $name in\n" +
         flags + "  esac; else case $name in\n" + arguments +
         "  esac; fi\n"
         "  COMPREPLY=($(compgen $files -W \"$words\" -- \"$cur\"))\n"
         "}\n"
         "complete -F _quire quire quire-router quire-worker\n";
}

// Inside the brackets of a zsh specification.
std::string ZshText(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string ZshArguments(const Description& program, const std::string& indent) {
  std::string out = indent + "_arguments -s";
  const std::string next = " \\\n" + indent + "  ";
  for (const FlagDescription& flag : program.flags) {
    const std::string help = "[" + ZshText(FirstSentence(flag.help)) + "]";
    const std::string many = flag.repeatable ? "*" : "";
    if (flag.value_name.empty()) {
      out += next + Quoted("--" + flag.name + help);
      out += next + Quoted("--no-" + flag.name + help);
      continue;
    }
    std::string action = " ";
    if (!flag.choices.empty()) action = "(" + Words(flag.choices) + ")";
    if (flag.choices.empty() && TakesPath(flag)) action = "_files";
    out += next + Quoted(many + "--" + flag.name + "=" + help + ":" + ZshText(flag.value_name) +
                         ":" + action);
  }
  int position = IsCommand(program) ? 2 : 1;
  for (const ArgumentDescription& argument : program.arguments) {
    std::string action = " ";
    if (!argument.choices.empty()) action = "(" + Words(argument.choices) + ")";
    if (argument.name == "MODEL") action = "_quire_models";
    out += next + Quoted(std::to_string(position++) + ":" + ZshText(argument.name) + ":" + action);
  }
  return out + "\n";
}

std::string ZshScript(const std::vector<Description>& programs) {
  std::string commands, cases;
  for (const Command& command : Commands()) {
    commands += "    " + Quoted(std::string(command.name) + ":" + std::string(command.help)) + "\n";
  }
  for (const Description& program : programs) {
    cases += "    " + ShortName(program) + ")\n" + ZshArguments(program, "      ") + "      ;;\n";
  }
  return "#compdef quire quire-router quire-worker\n"
         "# Completion of quire for zsh: quire completion zsh > a folder of $fpath/_quire\n"
         "_quire_models() {\n"
         "  local -a names\n"
         "  names=(${(f)\"$(" +
         std::string(kModelNames) +
         ")\"})\n"
         "  _describe model names\n"
         "  _files\n"
         "}\n"
         "_quire() {\n"
         "  local name=${words[1]:t}\n"
         "  local -a commands\n"
         "  commands=(\n" +
         commands +
         "  )\n"
         "  if [[ $name == quire ]]; then\n"
         "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
         "    name=${words[2]}\n"
         "  fi\n"
         "  case $name in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _quire quire quire-router quire-worker\n";
}

std::string FishScript(const std::vector<Description>& programs) {
  std::string out =
      "# Completion of quire for fish: quire completion fish | source\n"
      "function __quire_models; " +
      std::string(kModelNames) + "; end\n";
  for (const Command& command : Commands()) {
    out += "complete -c quire -n __fish_use_subcommand -f -a " + Quoted(command.name) + " -d " +
           Quoted(command.help) + "\n";
  }
  for (const Description& program : programs) {
    const std::string name = ShortName(program);
    const std::string start =
        IsCommand(program) ? "complete -c quire -n " + Quoted("__fish_seen_subcommand_from " + name)
                           : "complete -c " + name;
    for (const FlagDescription& flag : program.flags) {
      std::string line = start + " -l " + flag.name;
      if (!flag.choices.empty()) {
        line += " -x -a " + Quoted(Words(flag.choices));
      } else if (!flag.value_name.empty()) {
        line += TakesPath(flag) ? " -r -F" : " -x";
      }
      out += line + " -d " + Quoted(FirstSentence(flag.help)) + "\n";
      if (flag.value_name.empty()) out += start + " -l no-" + flag.name + "\n";
    }
    if (TakesModel(program)) out += start + " -a '(__quire_models)'\n";
    const std::vector<std::string> words = ArgumentWords(program);
    if (!words.empty()) out += start + " -f -a " + Quoted(Words(words)) + "\n";
  }
  return out;
}

}  // namespace

std::string CompletionScript(std::string_view shell, const std::vector<Description>& programs) {
  if (shell == "zsh") return ZshScript(programs);
  return shell == "fish" ? FishScript(programs) : BashScript(programs);
}

int RunCompletion(const CommandInputs& inputs) {
  std::string shell;
  config::Schema schema("quire completion",
                        "Writes a script that completes commands, flags and values. For bash: "
                        "source <(quire completion bash).");
  schema.AddPositional({.name = "SHELL",
                        .help = "bash, zsh or fish.",
                        .target = &shell,
                        .choices = {"bash", "zsh", "fish"}},
                       true);
  if (const std::optional<int> code = Begin(inputs, schema, "completion")) return *code;
  const absl::StatusOr<std::vector<Description>> programs = DescribeAll();
  if (!programs.ok()) return Failed("completion", programs.status());
  std::fputs(CompletionScript(shell, *programs).c_str(), stdout);
  return 0;
}

}  // namespace quire::cli
