#include "common/metrics_line.h"

#include <algorithm>

namespace quire {

std::optional<SeriesLine> ReadSeries(std::string_view line) {
  const size_t name_end = line.find_first_of("{ ");
  if (name_end == std::string_view::npos || name_end == 0 || line[0] == '#') return std::nullopt;
  SeriesLine series{.name = line.substr(0, name_end)};
  line.remove_prefix(name_end);
  if (line[0] == '{') {
    line.remove_prefix(1);
    while (!line.starts_with('}')) {
      const size_t equals = line.find("=\"");
      if (equals == std::string_view::npos) return std::nullopt;
      const size_t begin = equals + 2;
      size_t end = begin;
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      if (end >= line.size()) return std::nullopt;
      series.labels.push_back({line.substr(0, equals), line.substr(begin, end - begin)});
      line.remove_prefix(end + 1);
      if (line.starts_with(',')) line.remove_prefix(1);
    }
    line.remove_prefix(1);
  }
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.empty()) return std::nullopt;
  series.value = line;
  return series;
}

}  // namespace quire
