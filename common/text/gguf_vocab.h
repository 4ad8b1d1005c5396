// The vocabulary in a GGUF file's metadata, and its conversion to a tokenizer.json.
//
// Plain values: the reader of the file (worker/load) fills them, any thread may convert. With the
// conversion routers need to know only one tokenizer format.
//  1. Every field is hostile input: nothing here has been checked before GgufVocabToTokenizerJson.
//  2. Token ids of the result are the positions in `tokens`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::text {

// The values of `tokenizer.ggml.token_type`.
enum class GgufTokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The `tokenizer.*` keys of a GGUF file. Ids that the file doesn't name stay empty.
struct GgufVocab {
  std::string model;                // tokenizer.ggml.model: llama (scores), gpt2 or gemma4 (merges)
  std::string pre;                  // tokenizer.ggml.pre, names the splitting rule of "gpt2"
  std::vector<std::string> tokens;  // tokenizer.ggml.tokens
  std::vector<float> scores;        // tokenizer.ggml.scores, as many as tokens for "llama"
  std::vector<int32_t> token_types;      // tokenizer.ggml.token_type, as many as tokens, or empty
  std::vector<std::string> merges;       // tokenizer.ggml.merges, "left right", for "gpt2"
  std::optional<int32_t> bos_id;         // tokenizer.ggml.bos_token_id
  std::optional<int32_t> eos_id;         // tokenizer.ggml.eos_token_id
  std::optional<int32_t> eot_id;         // tokenizer.ggml.eot_token_id: ends a turn of a chat
  std::optional<int32_t> unknown_id;     // tokenizer.ggml.unknown_token_id
  std::optional<int32_t> padding_id;     // tokenizer.ggml.padding_token_id
  std::optional<bool> add_bos;           // tokenizer.ggml.add_bos_token
  std::optional<bool> add_eos;           // tokenizer.ggml.add_eos_token
  std::optional<bool> add_space_prefix;  // tokenizer.ggml.add_space_prefix
  std::string chat_template;             // tokenizer.chat_template, empty if absent
  std::string tool_template;             // tokenizer.chat_template.tool_use, the same
};

// The same vocabulary as the text of a Hugging Face tokenizer.json (BPE). For "llama" the merges
// follow from the scores: every split of a piece into two pieces is a merge, the pieces in falling
// order of score (SentencePiece's BPE takes the best-scored pair first, the leftmost among equals).
// INVALID_ARGUMENT names the key that is missing, of the wrong length or not supported.
absl::StatusOr<std::string> GgufVocabToTokenizerJson(const GgufVocab& vocab);

}  // namespace quire::text
