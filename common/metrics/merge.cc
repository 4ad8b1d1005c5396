#include "common/metrics/merge.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "common/metrics_line.h"

namespace quire {
namespace {

struct Family {
  std::string help;  // one line, or empty; as is `type`
  std::string type;
  std::string series;
};

void AppendSeries(std::string_view line, const std::string& engine, std::string& out) {
  const std::optional<SeriesLine> series = ReadSeries(line);
  if (!series) return;
  const auto own = std::find_if(series->labels.begin(), series->labels.end(),
                                [](const auto& label) { return label.name == "engine"; });
  if (engine.empty()) {
    out.append(line);
  } else if (own != series->labels.end()) {
    const auto at = static_cast<size_t>(own->value.data() - line.data());
    out.append(line.substr(0, at)).append(engine).append(line.substr(at + own->value.size()));
  } else {
    out.append(series->name).append("{engine=\"").append(engine);
    if (series->labels.empty()) {
      out.append("\"} ").append(series->value);
    } else {
      out.append("\",").append(line.substr(series->name.size() + 1));
    }
  }
  out += '\n';
}

bool IsName(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ':';
  });
}

// "# HELP name what it says": the name; empty for every other line.
std::string_view NameOfHead(std::string_view line) {
  if (!line.starts_with("# HELP ") && !line.starts_with("# TYPE ")) return {};
  line.remove_prefix(7);
  const std::string_view name = line.substr(0, line.find(' '));
  return IsName(name) ? name : std::string_view();
}

class Merger {
 public:
  void Add(const MetricsPart& part) {
    Family* family = nullptr;
    std::string_view name;
    for (size_t begin = 0; begin < part.text.size();) {
      const size_t end = std::min(part.text.find('\n', begin), part.text.size());
      const std::string_view line = std::string_view(part.text).substr(begin, end - begin);
      begin = end + 1;
      if (const std::string_view told = NameOfHead(line); !told.empty()) {
        if (family == nullptr || told != name) {
          name = told;
          family = &Find(std::string(name));
        }
        std::string& head = line.starts_with("# HELP ") ? family->help : family->type;
        if (head.empty()) head.append(line).append("\n");
      } else if (family != nullptr && line.starts_with(name)) {
        AppendSeries(line, part.engine, family->series);
      }
    }
  }

  std::string Text() const {
    std::string text;
    for (const Family& family : families_) text += family.help + family.type + family.series;
    return text;
  }

 private:
  Family& Find(const std::string& name) {
    const auto [at, is_new] = by_name_.try_emplace(name, nullptr);
    if (is_new) at->second = &families_.emplace_back();
    return *at->second;
  }

  std::deque<Family> families_;
  std::map<std::string, Family*> by_name_;
};

}  // namespace

std::string MergeMetrics(std::span<const MetricsPart> parts) {
  Merger merger;
  for (const MetricsPart& part : parts) merger.Add(part);
  return merger.Text();
}

}  // namespace quire
