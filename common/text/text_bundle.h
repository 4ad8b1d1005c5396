// Everything that a router needs to turn text into a model's tokens and back: one value, one byte
// string.
//
// A worker builds it from the model's files and serves its bytes; a router reads those bytes as
// hostile input. Plain values without an owner thread.
//  1. Serialize is deterministic: equal bundles have equal bytes, and so equal SHA-256.
//  2. Parse(Serialize(b)) == b, and Parse accepts nothing that Serialize would not write.
//  3. No field may make Serialize exceed kMaxTextBundleBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/gguf_vocab.h"

namespace quire::text {

inline constexpr size_t kMaxTextBundleBytes = size_t{128} << 20;
inline constexpr size_t kMaxTextBundleItems = 4096;  // in each list

// A special token under the name that templates and settings use: "bos_token", "eos_token", ...
struct NamedToken {
  std::string name;
  std::string text;
  int32_t id = -1;  // -1: the tokenizer doesn't know the text

  bool operator==(const NamedToken&) const = default;
};

struct NamedTemplate {
  std::string name;  // "default", "tool_use", ...
  std::string source;

  bool operator==(const NamedTemplate&) const = default;
};

// Sampling defaults from generation_config.json. Empty: the model sets none.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> max_new_tokens;
  std::optional<bool> do_sample;

  bool operator==(const GenerationDefaults&) const = default;
};

struct TextBundle {
  std::string tokenizer_json;
  std::vector<NamedTemplate> chat_templates;  // one per name; empty: no chat format
  std::vector<NamedToken> special_tokens;     // at most one per name
  std::vector<int32_t> eos_token_ids;  // ids that end generation, ascending, without duplicates
  GenerationDefaults generation;
  int64_t model_max_length = 0;  // tokens; 0: unknown

  bool operator==(const TextBundle&) const = default;

  // The template for a request with or without tools ("tool_use" if there is one and tools are
  // given, otherwise "default"); nullptr: the model has no chat format.
  const std::string* ChatTemplateSource(bool with_tools) const;

  // The text of the special token with this name ("bos_token"); nullptr: none.
  const NamedToken* FindSpecialToken(std::string_view name) const;
};

// The bytes of a bundle. RESOURCE_EXHAUSTED past kMaxTextBundleBytes.
absl::StatusOr<std::string> SerializeTextBundle(const TextBundle& bundle);

// A bundle from bytes of an unknown sender. INVALID_ARGUMENT names the field that is wrong. The
// tokenizer and the templates inside are not compiled here.
absl::StatusOr<TextBundle> ParseTextBundle(std::string_view bytes);

// SHA-256 of the serialized bytes, as 64 hexadecimal digits.
std::string TextBundleDigest(std::string_view serialized);

// A bundle from the contents of a Hugging Face directory's files, by file name: tokenizer.json
// (required), tokenizer_config.json, special_tokens_map.json, chat_template.jinja,
// additional_chat_templates/tool_use.jinja, chat_template.json, generation_config.json, config.json
// (all optional; others are ignored).
// INVALID_ARGUMENT names file and key.
absl::StatusOr<TextBundle> TextBundleFromFiles(const std::map<std::string, std::string>& files);

// A bundle from the metadata of a GGUF file. Same errors as GgufVocabToTokenizerJson.
absl::StatusOr<TextBundle> TextBundleFromGguf(const GgufVocab& vocab);

}  // namespace quire::text
