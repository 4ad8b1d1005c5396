// `quire parse`: a model's raw answer, marks written out, as the API shows it.
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>

#include "cli/commands.h"
#include "cli/format.h"
#include "common/dialect/parser.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxRawBytes = size_t{64} << 20;
constexpr size_t kMaxRandomCut = 16;  // bytes of a random delta

// How the text is cut into deltas: into pieces of one size, or of random ones.
struct Cut {
  size_t size = 0;  // 0: not at all
  bool random = false;
  uint64_t seed = 0;
};

absl::StatusOr<Cut> ReadCut(std::string_view text) {
  Cut cut;
  if (text.empty()) return cut;
  constexpr std::string_view kRandom = "random:";
  cut.random = text.starts_with(kRandom);
  const std::string_view number = cut.random ? text.substr(kRandom.size()) : text;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  if (!whole || (!cut.random && value == 0)) {
    return InvalidArgument("--cut: must be a number of bytes from 1, or random:SEED, is '" +
                           std::string(text) + "'; try 1 or random:7");
  }
  (cut.random ? cut.seed : cut.size) = value;
  return cut;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && text.empty()) {
    return InvalidArgument("--tools: " + path + " cannot be read: name a file with a JSON array");
  }
  return text;
}

absl::StatusOr<std::string> ReadInput() {
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  if (text.size() > kMaxRawBytes) return InvalidArgument("standard input: has more than 64 MiB");
  return text;
}

dialect::Answer Parse(const dialect::ParserOptions& options, std::string_view text, Cut cut) {
  dialect::Parser parser(options);
  dialect::Answer answer;
  std::mt19937_64 random(cut.seed);
  while (!text.empty()) {
    size_t size = cut.size == 0 ? text.size() : cut.size;
    if (cut.random) size = 1 + random() % kMaxRandomCut;
    answer.Add(parser.Text(text.substr(0, size)));
    text.remove_prefix(std::min(size, text.size()));
  }
  answer.Add(parser.Finish());
  return answer;
}

// Arguments that are JSON stay as they are written.
std::string AnswerJson(const dialect::Answer& answer) {
  std::string out = "{\"content\": ";
  json::AppendQuoted(answer.content, out);
  out += ", \"reasoning\": ";
  json::AppendQuoted(answer.reasoning, out);
  out += ", \"tool_calls\": [";
  bool first = true;
  for (const dialect::Answer::Call& call : answer.calls) {
    out += first ? "{\"name\": " : ", {\"name\": ";
    first = false;
    json::AppendQuoted(call.name, out);
    out += ", \"arguments\": ";
    if (dialect::IsJson(call.arguments)) {
      out += call.arguments;
    } else {
      json::AppendQuoted(call.arguments, out);
    }
    out += '}';
  }
  return out + "]}\n";
}

struct Settings {
  std::string dialect, reasoning, tools, cut;
  bool reasoning_open = false;
};

absl::Status Run(const Settings& settings) {
  dialect::ParserOptions options;
  options.dialect = dialect::FindDialect(settings.dialect);
  if (options.dialect == nullptr) {
    return InvalidArgument("--dialect: must be one of " + dialect::DialectNames() + "; is '" +
                           settings.dialect + "'");
  }
  const std::string_view reasoning =
      settings.reasoning.empty() ? options.dialect->thoughts : std::string_view(settings.reasoning);
  options.thoughts = dialect::FindThoughts(reasoning);
  if (options.thoughts == nullptr) {
    return InvalidArgument("--reasoning: must be one of " + dialect::ThoughtsNames() + "; is '" +
                           settings.reasoning + "'");
  }
  options.thought_opened = settings.reasoning_open;
  QUIRE_ASSIGN_OR_RETURN(const Cut cut, ReadCut(settings.cut));
  if (!settings.tools.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string tools, ReadFile(settings.tools));
    const bool nested = options.dialect->form == dialect::Form::kNested;
    QUIRE_ASSIGN_OR_RETURN(dialect::ToolTypes types, dialect::ToolTypes::FromJson(tools, nested));
    options.types = std::make_shared<const dialect::ToolTypes>(std::move(types));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadInput());
  Show(stdout, AnswerJson(Parse(options, text, cut)));
  return absl::OkStatus();
}

}  // namespace

int RunParse(const CommandInputs& inputs) {
  Settings settings;
  config::Schema schema("quire parse",
                        "Takes a model's raw answer apart, read from standard input with its marks "
                        "written out, and prints {content, reasoning, tool_calls} as JSON.");
  schema.Add({.name = "dialect",
              .help = "How the model writes tool calls: " + dialect::DialectNames() + ".",
              .target = &settings.dialect,
              .value_name = "NAME"});
  schema.Add({.name = "reasoning",
              .help = "How the model writes thoughts, if not as its family does: " +
                      dialect::ThoughtsNames() + ".",
              .target = &settings.reasoning,
              .value_name = "NAME",
              .default_text = "the dialect's"});
  schema.Add({.name = "reasoning-open",
              .help = "The template has opened the thought, so that the answer begins inside it.",
              .target = &settings.reasoning_open});
  schema.Add({.name = "tools",
              .help = "The request's tools, a JSON array: their schemas type the arguments of "
                      "dialects that write values as bare text.",
              .target = &settings.tools,
              .value_name = "FILE",
              .default_text = "none"});
  schema.Add({.name = "cut",
              .help = "Hands the text over in deltas of N bytes, or of random sizes from a seed. "
                      "The result is the same.",
              .target = &settings.cut,
              .value_name = "N|random:SEED",
              .default_text = "all at once"});
  if (const std::optional<int> code = Begin(inputs, schema, "parse")) return *code;
  const absl::Status status = Run(settings);
  return status.ok() ? 0 : Failed("parse", status);
}

}  // namespace quire::cli
