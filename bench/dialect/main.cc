// Speed of the parser of answers on one thread, by dialect: in large pieces, and in deltas of a
// token: quire-bench-dialect [repetitions]. The last line is JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/dialect/parser.h"

namespace quire::bench {
namespace {

constexpr size_t kTextBytes = size_t{1} << 20;
constexpr size_t kDeltaBytes = 4;  // about a token

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Prose with code in it, and a call of the dialect every few hundred bytes.
std::string MakeText(const dialect::Dialect& dialect) {
  std::string out;
  while (out.size() < kTextBytes) {
    for (int i = 0; i < 12; ++i) out += "If x < y then use `a[i]` and {b}; it's the faster way.\n";
    out += dialect.example;
    out += '\n';
  }
  return out;
}

size_t Parse(const dialect::Dialect& dialect, std::string_view text, size_t delta) {
  dialect::ParserOptions options;
  options.dialect = &dialect;
  options.thoughts = dialect::FindThoughts(dialect.thoughts);
  options.limits.max_calls = 1 << 20;
  dialect::Parser parser(options);
  size_t events = 0;
  for (size_t at = 0; at < text.size(); at += delta) {
    events += parser.Text(text.substr(at, delta)).size();
  }
  return events + parser.Finish().size();
}

double Best(int repetitions, auto run) {
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) {
    const double start = Seconds();
    run();
    best = std::min(best, Seconds() - start);
  }
  return best;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  using namespace quire;
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  std::string json = "{";
  for (const dialect::Dialect* one : dialect::Dialects()) {
    const std::string text = bench::MakeText(*one);
    size_t events = 0;
    const double large =
        bench::Best(repetitions, [&] { events += bench::Parse(*one, text, size_t{64} << 10); });
    const double small =
        bench::Best(repetitions, [&] { events += bench::Parse(*one, text, bench::kDeltaBytes); });
    const auto deltas = static_cast<double>(text.size() / bench::kDeltaBytes);
    char row[160];
    std::snprintf(row, sizeof(row), "%s\"%s\": {\"mb_per_s\": %.1f, \"us_per_delta\": %.3f}",
                  json.size() > 1 ? ", " : "", std::string(one->name).c_str(),
                  static_cast<double>(text.size()) / large / 1e6, small * 1e6 / deltas);
    json += row;
    if (events == 0) return 1;
  }
  std::printf("%s}\n", json.c_str());
  return 0;
}
