// What the tests of dialects share: an answer parsed whole, at every single cut, byte by byte and
// in random pieces.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "common/dialect/parser.h"

namespace quire::dialect {

// One piece of input.
struct Piece {
  std::string text;
  bool special = false;
};

inline Answer ParsePieces(const ParserOptions& options, const std::vector<Piece>& pieces) {
  Parser parser(options);
  Answer answer;
  for (const Piece& piece : pieces) {
    answer.Add(piece.special ? parser.Special(piece.text) : parser.Text(piece.text));
  }
  answer.Add(parser.Finish());
  return answer;
}

inline Answer ParseWhole(const ParserOptions& options, std::string_view text) {
  return ParsePieces(options, {{std::string(text)}});
}

// Where a cutting changes the result: a line that says how it was cut; empty: nowhere.
inline std::string DiffersAt(const ParserOptions& options, std::string_view text) {
  const Answer whole = ParseWhole(options, text);
  const auto same = [&](const std::vector<Piece>& pieces) {
    return ParsePieces(options, pieces) == whole;
  };
  for (size_t cut = 1; cut < text.size(); ++cut) {
    if (!same({{std::string(text.substr(0, cut))}, {std::string(text.substr(cut))}})) {
      return "cut at " + std::to_string(cut) + ": " + std::string(text);
    }
  }
  for (size_t seed = 0; seed < 8; ++seed) {  // 0: byte by byte
    std::mt19937_64 random(seed);
    std::vector<Piece> pieces;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t size = std::min(rest.size(), seed == 0 ? 1 : 1 + random() % (4 * seed));
      pieces.push_back({std::string(rest.substr(0, size))});
      rest.remove_prefix(size);
    }
    if (!same(pieces)) return "random cuts " + std::to_string(seed) + ": " + std::string(text);
  }
  return "";
}

inline ParserOptions OptionsOf(std::string_view dialect) {
  ParserOptions options;
  options.dialect = FindDialect(dialect);
  options.thoughts = FindThoughts(options.dialect->thoughts);
  return options;
}

}  // namespace quire::dialect
