#include "common/metrics/merge.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"

namespace quire {
namespace {

struct Family {
  std::string help;  // one line, or empty; as is `type`
  std::string type;
  std::string series;
};

// Where the quoted value ends that begins at `at`; npos: nowhere.
size_t EndOfValue(std::string_view line, size_t at) {
  while (at < line.size() && line[at] != '"') at += line[at] == '\\' ? 2 : 1;
  return at < line.size() ? at : std::string_view::npos;
}

// `{a="b",engine="0"} 1` begins behind the name; where the label's value lies, or npos.
size_t FindEngine(std::string_view labels) {
  constexpr std::string_view kLabel = "engine=\"";
  bool quoted = false;
  for (size_t i = 1; i < labels.size(); ++i) {
    if (quoted && labels[i] == '\\') {
      ++i;
    } else if (labels[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && labels[i] == '}') {
      break;
    } else if (!quoted && (labels[i - 1] == '{' || labels[i - 1] == ',') &&
               labels.substr(i).starts_with(kLabel)) {
      return i + kLabel.size();
    }
  }
  return std::string_view::npos;
}

void AppendSeries(std::string_view line, const std::string& engine, std::string& out) {
  const size_t name_end = line.find_first_of("{ ");
  if (engine.empty() || name_end == std::string_view::npos) {
    out += line;
  } else if (line[name_end] == ' ') {
    out.append(line.substr(0, name_end)).append("{engine=\"").append(engine).append("\"}");
    out += line.substr(name_end);
  } else if (const size_t at = FindEngine(line.substr(name_end)); at != std::string_view::npos) {
    const size_t end = EndOfValue(line, name_end + at);
    out.append(line.substr(0, name_end + at)).append(engine);
    if (end != std::string_view::npos) out += line.substr(end);
  } else {
    out.append(line.substr(0, name_end)).append("{engine=\"").append(engine).append("\",");
    out += line.substr(name_end + 1);
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
