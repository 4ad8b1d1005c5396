#include "cli/known_flags.h"

namespace quire::cli {
namespace {

constexpr std::string_view kFlagStart = "  --";
constexpr std::string_view kRepeatable = "Repeatable.";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Takes " [default]" and " Repeatable." off the end of the help.
void SplitHelp(KnownFlag& flag) {
  if (!flag.help.empty() && flag.help.back() == ']') {
    const size_t open = flag.help.rfind('[');
    if (open != std::string::npos) {
      flag.default_text = flag.help.substr(open + 1, flag.help.size() - open - 2);
      flag.help = std::string(Trim(std::string_view(flag.help).substr(0, open)));
    }
  }
  if (flag.help.ends_with(kRepeatable)) {
    flag.repeatable = true;
    flag.help.resize(flag.help.size() - kRepeatable.size());
    flag.help = std::string(Trim(flag.help));
  }
}

}  // namespace

std::vector<KnownFlag> ParseHelp(std::string_view help_text) {
  std::vector<KnownFlag> flags;
  bool in_flag = false;
  size_t start = 0;
  while (start < help_text.size()) {
    const size_t end = std::min(help_text.find('\n', start), help_text.size());
    const std::string_view line = help_text.substr(start, end - start);
    start = end + 1;
    if (line.starts_with("  --help")) {
      in_flag = false;
    } else if (line.starts_with(kFlagStart)) {
      KnownFlag flag;
      const std::string_view rest = line.substr(kFlagStart.size());
      // The name and its value are one space apart; the help stands further right.
      const size_t gap = std::min(rest.find("  "), rest.size());
      const std::string_view left = rest.substr(0, gap);
      const size_t space = std::min(left.find(' '), left.size());
      flag.name = std::string(left.substr(0, space));
      flag.value_name = std::string(Trim(left.substr(space)));
      flag.help = std::string(Trim(rest.substr(gap)));
      flags.push_back(std::move(flag));
      in_flag = true;
    } else if (in_flag && line.starts_with("      ")) {
      std::string& help = flags.back().help;
      if (!help.empty()) help += ' ';
      help += Trim(line);
    } else {
      in_flag = false;
    }
  }
  for (KnownFlag& flag : flags) SplitHelp(flag);
  return flags;
}

}  // namespace quire::cli
