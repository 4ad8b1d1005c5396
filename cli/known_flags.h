// What flags a sibling program takes, read from its --help: so that `quire serve` takes every flag
// of the router and the worker without a second list of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::cli {

struct KnownFlag {
  std::string name;
  std::string value_name;  // empty: a bool flag
  std::string help;        // without its default
  std::string default_text;
  bool repeatable = false;
};

// From the text of --help as common/config writes it. Lines of another form are passed over.
std::vector<KnownFlag> ParseHelp(std::string_view help_text);

}  // namespace quire::cli
