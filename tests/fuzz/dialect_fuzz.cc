// Fuzzes the parser of answers: the same result whole and in pieces, with calls that are well
// formed.
//
// The input's first byte picks the dialect, the second how the text is cut, the third the limits
// and whether the answer begins inside a thought; the rest is the answer.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/dialect/parser.h"

namespace {

using namespace quire::dialect;

Answer Parse(const ParserOptions& options, std::string_view text, size_t piece) {
  Parser parser(options);
  Answer answer;
  while (!text.empty()) {
    answer.Add(parser.Text(text.substr(0, piece)));
    text.remove_prefix(std::min(piece, text.size()));
  }
  answer.Add(parser.Finish());
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  ParserOptions options;
  options.dialect = Dialects()[data[0] % Dialects().size()];
  options.thoughts = FindThoughts(options.dialect->thoughts);
  options.thought_opened = (data[2] & 1) != 0;
  if ((data[2] & 2) != 0) {
    options.limits = {
        .max_calls = 2, .max_argument_bytes = 32, .max_nesting = 2, .max_head_bytes = 8};
  }
  const Answer whole = Parse(options, text, std::max<size_t>(text.size(), 1));
  if (!(Parse(options, text, 1 + data[1] % 32) == whole)) std::abort();
  for (const Answer::Call& call : whole.calls) {
    if (call.name.empty() || call.arguments.size() > options.limits.max_argument_bytes) {
      std::abort();
    }
  }
  return 0;
}
