// A series in a line of Prometheus' text format: `name{a="b",c="d"} 1`.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// Views into the line.
struct SeriesLine {
  struct Label {
    std::string_view name;
    std::string_view value;  // escaped, as in the line
  };
  std::string_view name;
  std::vector<Label> labels = {};
  std::string_view value = {};  // with the time that may follow
};

// Empty for a line that is no series. The value is not read.
std::optional<SeriesLine> ReadSeries(std::string_view line);

}  // namespace quire
