// Token ids to text, piece by piece: the text that a stream shows as tokens arrive.
//
// One per stream, owned by it and called by its thread only. The tokenizer must outlive it.
//  1. The concatenation of all Append results and one Flush equals Tokenizer::Decode of all ids,
//     for any split of the ids between calls: no text is lost, doubled or changed later.
//  2. Every result is valid UTF-8: bytes of an incomplete character are held back (at most three).
//  3. A token costs time linear in its own bytes, independent of what came before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/text/tokenizer.h"

namespace quire::text {

struct DetokenizerOptions {
  bool skip_special_tokens = true;
};

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {});

  // The text that these ids add. Ids that don't exist add nothing.
  std::string Append(std::span<const int32_t> ids);

  // The text still held back, as final: an incomplete character becomes U+FFFD. Append may follow,
  // as if the held bytes had been complete.
  std::string Flush();

 private:
  void AppendToken(int32_t id, std::string* out);
  void AppendByte(unsigned char byte, std::string* out);
  void GiveUpPending(std::string* out);

  const Tokenizer& tokenizer_;
  const DetokenizerOptions options_;
  unsigned char pending_[4] = {};  // the bytes of an incomplete character
  int pending_size_ = 0;
  int needed_size_ = 0;  // the whole size of the incomplete character
  int32_t spaces_to_strip_ = 0;
  bool at_start_ = true;  // nothing has been decoded yet
};

}  // namespace quire::text
