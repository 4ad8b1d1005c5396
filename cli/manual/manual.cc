// Manual pages and the reference of flags, and `quire man`, which writes them.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "cli/manual/descriptions.h"

namespace quire::cli {
namespace {

using config::ArgumentDescription;
using config::Description;
using config::FlagDescription;

constexpr std::string_view kOverview =
    "serves large language models: a router and its workers, and what is needed around them";
constexpr std::string_view kWays =
    "Each flag is also an environment variable (--max-model-len: QUIRE_MAX_MODEL_LEN) and a key of "
    "the YAML file given with --config. A flag wins over the environment, which wins over the "
    "file. "
    "A bool flag --x is switched off by --no-x. Sizes: 512MiB, 2GB. Times: 200ms, 30s, 5m.";
constexpr std::string_view kExitCodes =
    "0: done. 1: failed at run time. 2: bad arguments or configuration. 3: the model cannot be "
    "used. 4: the device cannot be used. 130: interrupted by Ctrl-C.";

// The character at `i`, which is moved past it: \[U00D7], as groff writes what is not ASCII.
std::string RoffCharacter(std::string_view text, size_t& i) {
  const auto first = static_cast<unsigned char>(text[i]);
  const size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  uint32_t code = first & (0x3f >> more);
  for (size_t k = 0; k < more && i + 1 < text.size(); ++k) {
    code = code << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f);
  }
  char name[16];
  std::snprintf(name, sizeof(name), "\\[u%04X]", code);
  return name;
}

// Escapes text for a page, so that roff reads none of it as a request or an escape.
std::string Roff(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) {
      out += RoffCharacter(text, i);
      continue;
    }
    const bool line_start = i == 0 || text[i - 1] == '\n';
    if (line_start && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') {
      out += "\\e";
    } else if (text[i] == '-') {
      out += "\\-";
    } else {
      out += text[i];
    }
  }
  return out;
}

// "quire-serve" of "quire serve": the name of its page.
std::string PageName(const Description& program) {
  std::string name = program.program;
  for (char& c : name) {
    if (c == ' ') c = '-';
  }
  return name;
}

std::string Title(const std::string& name) {
  std::string upper = name;
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return ".TH " + Roff(upper) + " 1 \"\" \"quire " + QUIRE_VERSION + "\" \"Quire\"\n";
}

std::string Usage(const Description& program) {
  std::string usage = "[flags]";
  for (const ArgumentDescription& argument : program.arguments) {
    usage += argument.required ? " " + argument.name : " [" + argument.name + "]";
  }
  return usage;
}

// A cell of a Markdown table.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

absl::Status WritePage(const std::filesystem::path& folder, const std::string& name,
                       const std::string& text) {
  const std::filesystem::path path = folder / (name + ".1");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(AbslView("--folder: " + path.string() + " cannot be written"));
}

absl::Status WriteAll(const std::string& folder, const std::vector<Description>& programs) {
  std::error_code error;
  const std::filesystem::path pages = std::filesystem::path(folder) / "man1";
  std::filesystem::create_directories(pages, error);
  if (error) {
    return absl::UnavailableError(
        AbslView("--folder: " + pages.string() + " cannot be made: " + error.message()));
  }
  QUIRE_RETURN_IF_ERROR(WritePage(pages, "quire", ManualOverview()));
  for (const Description& program : programs) {
    QUIRE_RETURN_IF_ERROR(WritePage(pages, PageName(program), ManualPage(program)));
  }
  std::printf("%zu pages in %s; man -M %s quire\n", programs.size() + 1, pages.c_str(),
              folder.c_str());
  return absl::OkStatus();
}

}  // namespace

std::string ManualPage(const Description& program) {
  const std::string name = PageName(program);
  std::string out = Title(name);
  std::string summary = program.summary;
  if (summary.ends_with('.')) summary.pop_back();
  out += ".SH NAME\n" + Roff(name) + " \\- " + Roff(summary) + "\n";
  out += ".SH SYNOPSIS\n.B " + Roff(program.program) + "\n" + Roff(Usage(program)) + "\n";
  if (!program.arguments.empty()) out += ".SH ARGUMENTS\n";
  for (const ArgumentDescription& argument : program.arguments) {
    out += ".TP\n.I " + Roff(argument.name) + "\n" + Roff(argument.help) + "\n";
  }
  out += ".SH OPTIONS\n";
  std::string group;
  for (const FlagDescription& flag : program.flags) {
    if (flag.group != group) {
      group = flag.group;
      out += ".SS " + Roff(group) + "\n";
    }
    out += ".TP\n.B " + Roff("--" + flag.name);
    if (!flag.value_name.empty()) out += " \\fI" + Roff(flag.value_name) + "\\fR";
    out += "\n" + Roff(flag.help);
    if (flag.repeatable) out += " Repeatable.";
    if (!flag.default_text.empty()) out += "\n.br\nDefault: " + Roff(flag.default_text);
    out += "\n";
  }
  out += ".SH ENVIRONMENT\n" + Roff(kWays) + "\n";
  out += ".SH EXIT STATUS\n" + Roff(kExitCodes) + "\n";
  out += ".SH SEE ALSO\n.BR quire (1)\n";
  return out;
}

std::string ManualOverview() {
  std::string out = Title("quire");
  out += ".SH NAME\nquire \\- " + Roff(kOverview) + "\n";
  out += ".SH SYNOPSIS\n.B quire\nCOMMAND [arguments]\n.SH COMMANDS\n";
  std::string also;
  for (const Command& command : Commands()) {
    const std::string name = Roff("quire-" + std::string(command.name));
    out += ".TP\n.B " + Roff(command.name) + "\n" + Roff(command.help) + "\n";
    also += ".BR " + name + " (1),\n";
  }
  out += ".SH ENVIRONMENT\n" + Roff(kWays) + "\n";
  out += ".SH EXIT STATUS\n" + Roff(kExitCodes) + "\n";
  out += ".SH SEE ALSO\n" + also + ".BR quire\\-router (1),\n.BR quire\\-worker (1)\n";
  return out;
}

std::string ReferenceText(const std::vector<Description>& programs) {
  std::string out =
      "# Command line\n\nWritten by `quire man --markdown` from the flags that the programs "
      "have.\n" +
      std::string(kWays) + "\n\nExit codes: " + std::string(kExitCodes) + "\n";
  for (const Description& program : programs) {
    out += "\n## " + program.program + "\n" + program.summary + "\n\n    " + program.program + " " +
           Usage(program) + "\n\n";
    if (!program.arguments.empty()) out += "| argument | what it says |\n|---|---|\n";
    for (const ArgumentDescription& argument : program.arguments) {
      out += "| `" + argument.name + "` | " + Cell(argument.help) + " |\n";
    }
    if (!program.arguments.empty()) out += "\n";
    out += "| flag | default | what it says |\n|---|---|---|\n";
    for (const FlagDescription& flag : program.flags) {
      std::string name = "--" + flag.name;
      if (!flag.value_name.empty()) name += " " + flag.value_name;
      out += "| `" + Cell(name) + "` | " + Cell(flag.default_text) + " | " + Cell(flag.help) +
             (flag.repeatable ? " Repeatable." : "") + " |\n";
    }
  }
  return out;
}

int RunManual(const CommandInputs& inputs) {
  std::string wanted;
  std::string folder;
  bool markdown = false;
  config::Schema schema("quire man",
                        "Writes the manual pages: one to standard output (quire man serve | man -l "
                        "-), or all of them into a folder.");
  schema.AddPositional(
      {.name = "PAGE",
       .help = "A command of quire, or router or worker; quire's own page when it is left out.",
       .target = &wanted},
      false);
  schema.Group("Manual");
  schema.Add({.name = "folder",
              .help = "Writes all pages into man1/ below this folder.",
              .target = &folder,
              .value_name = "DIR",
              .default_text = "none"});
  schema.Add({.name = "markdown",
              .help = "Writes one text with all flags, as docs/reference/cli.md is.",
              .target = &markdown});
  if (const std::optional<int> code = Begin(inputs, schema, "man")) return *code;
  const absl::StatusOr<std::vector<Description>> programs = DescribeAll();
  if (!programs.ok()) return Failed("man", programs.status());
  if (markdown) {
    std::fputs(ReferenceText(*programs).c_str(), stdout);
    return 0;
  }
  if (!folder.empty()) {
    const absl::Status written = WriteAll(folder, *programs);
    return written.ok() ? 0 : Failed("man", written);
  }
  if (wanted.empty() || wanted == "quire") {
    std::fputs(ManualOverview().c_str(), stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const Description& program : *programs) {
    const std::string page = PageName(program);
    const std::string_view short_name =
        std::string_view(page).substr(std::string_view("quire-").size());
    if (wanted == page || wanted == short_name) {
      std::fputs(ManualPage(program).c_str(), stdout);
      return 0;
    }
    names.emplace_back(short_name);
  }
  const std::string nearest = config::NearestMatch(wanted, names);
  return Failed("man", InvalidArgument("PAGE: there is none of '" + wanted + "'" +
                                       (nearest.empty() ? "; see quire --help"
                                                        : "; did you mean " + nearest + "?")));
}

}  // namespace quire::cli
