// How much text one token can stand for, so that a text which cannot fit a context is refused
// before it is tokenised.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "common/text/tokenizer.h"

namespace quire {

// The most bytes of a text that become one token; 0: not known. It is known of tokenizers whose
// tokens together are the text, byte by byte: byte-level ones that normalize nothing and drop
// nothing. `tokenizer_json` is what the tokenizer was read from.
size_t LongestTokenBytes(const text::Tokenizer& tokenizer, std::string_view tokenizer_json);

}  // namespace quire
