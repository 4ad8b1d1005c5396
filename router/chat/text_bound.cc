#include "router/chat/text_bound.h"

#include <algorithm>
#include <cctype>

namespace quire {
namespace {

// Whether `name` is a key with this value somewhere. A file that has it where it means something
// else only makes less known, or its own prompts be refused.
bool Has(std::string_view json, std::string_view name, std::string_view value) {
  for (size_t at = json.find(name); at != json.npos; at = json.find(name, at + 1)) {
    size_t next = at + name.size();
    const auto skip_space = [&] {
      while (next < json.size() && std::isspace(static_cast<unsigned char>(json[next]))) ++next;
    };
    skip_space();
    if (next >= json.size() || json[next] != ':') continue;
    ++next;
    skip_space();
    if (json.substr(next).starts_with(value)) return true;
  }
  return false;
}

}  // namespace

size_t LongestTokenBytes(const text::Tokenizer& tokenizer, std::string_view tokenizer_json) {
  if (!Has(tokenizer_json, "\"normalizer\"", "null") ||
      !Has(tokenizer_json, "\"type\"", "\"ByteLevel\"")) {
    return 0;
  }
  for (const std::string_view trims : {"\"lstrip\"", "\"rstrip\""}) {
    if (Has(tokenizer_json, trims, "true")) return 0;
  }
  if (Has(tokenizer_json, "\"behavior\"", "\"Removed\"")) return 0;
  size_t longest = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(text::kMaxVocabSize); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(id).size());
  }
  return longest;
}

}  // namespace quire
