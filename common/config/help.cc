// --help: the settings by group, aligned and wrapped for a terminal of 100 columns.
#include <algorithm>

#include "common/config/schema.h"
#include "common/config/store.h"

namespace quire::config {
namespace {

constexpr size_t kHelpColumn = 34;
constexpr size_t kLineWidth = 100;

// Appends `text` from column kHelpColumn on; its first line continues the line of `out`, which has
// reached `column`.
void AppendWrapped(const std::string& text, size_t column, std::string& out) {
  if (column >= kHelpColumn) {
    out += '\n';
    column = 0;
  }
  out.append(kHelpColumn - column, ' ');
  column = kHelpColumn;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const size_t length = end - start;
    if (column > kHelpColumn && column + 1 + length > kLineWidth) {
      out += '\n';
      out.append(kHelpColumn, ' ');
      column = kHelpColumn;
    } else if (column > kHelpColumn) {
      out += ' ';
      ++column;
    }
    out.append(text, start, length);
    column += length;
    start = end + 1;
  }
  out += '\n';
}

}  // namespace

std::vector<std::string> Schema::Groups() const {
  std::vector<std::string> groups;
  for (const Entry& entry : entries_) {
    if (std::find(groups.begin(), groups.end(), entry.group) == groups.end()) {
      groups.push_back(entry.group);
    }
  }
  // The built-in group comes last: it is the same in every program.
  if (groups.size() > 1) std::rotate(groups.begin(), groups.begin() + 1, groups.end());
  return groups;
}

Description Schema::Describe() const {
  Description description{program_, summary_, {}, {}};
  for (const Positional& positional : positionals_) {
    description.arguments.push_back(
        {positional.flag.name, positional.flag.help, positional.flag.choices, positional.required});
  }
  for (const std::string& group : Groups()) {
    for (const Entry& entry : entries_) {
      if (entry.group != group || entry.flag.hidden) continue;
      const bool list = std::holds_alternative<std::vector<std::string>*>(entry.flag.target);
      description.flags.push_back({entry.flag.name, group, entry.flag.help, ValueName(entry.flag),
                                   entry.default_text, entry.flag.choices, list,
                                   entry.flag.secret});
    }
  }
  return description;
}

std::string Schema::HelpText() const {
  std::string out = "Usage: " + program_ + " [flags]";
  for (const Positional& positional : positionals_) {
    out += positional.required ? " " + positional.flag.name : " [" + positional.flag.name + "]";
  }
  out += "\n" + summary_ + "\n";
  if (!positionals_.empty()) out += "\nArguments\n";
  for (const Positional& positional : positionals_) {
    const std::string left = "  " + positional.flag.name;
    out += left;
    AppendWrapped(positional.flag.help, left.size(), out);
  }
  for (const std::string& group : Groups()) {
    std::string lines;
    for (const Entry& entry : entries_) {
      if (entry.group != group || entry.flag.hidden) continue;
      const std::string value_name = ValueName(entry.flag);
      const std::string left =
          "  --" + entry.flag.name + (value_name.empty() ? "" : " " + value_name);
      std::string help = entry.flag.help;
      if (std::holds_alternative<std::vector<std::string>*>(entry.flag.target))
        help += " Repeatable.";
      if (!entry.default_text.empty()) help += " [" + entry.default_text + "]";
      lines += left;
      AppendWrapped(help, left.size(), lines);
    }
    if (!lines.empty()) out += "\n" + group + "\n" + lines;
  }
  out += "  --help, --version\n";
  out +=
      "\nEach flag is also an environment variable (--max-model-len: QUIRE_MAX_MODEL_LEN) and a "
      "key "
      "of the\nfile given with --config. A flag wins over the environment, which wins over the "
      "file. A "
      "bool flag\n--x is switched off by --no-x. Sizes: 512MiB, 2GB. Times: 200ms, 30s, 5m.\n";
  return out;
}

}  // namespace quire::config
