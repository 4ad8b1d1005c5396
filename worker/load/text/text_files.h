// A model's text bundle from its files: tokenizer, templates, special tokens, generation defaults.
//
// Pure functions over opened ModelFiles; called once, on the loading thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/text/text_bundle.h"
#include "worker/load/model_files.h"

namespace quire::load {

// How a family splits texts into words: its value of tokenizer.ggml.pre, for GGUF files that lack
// it.
struct SplittingRule {
  std::string_view name = "";  // empty: the family has none
  size_t tokens = 0;           // for vocabularies of this size alone; 0: of any
};

// INVALID_ARGUMENT or NOT_FOUND names the file or metadata key that is missing or wrong.
absl::StatusOr<text::TextBundle> LoadTextBundle(const ModelFiles& files,
                                                const SplittingRule& rule = {});

// The vocabulary in a GGUF file's metadata; only its types are checked.
absl::StatusOr<text::GgufVocab> ReadGgufVocab(const GgufFile& file, const SplittingRule& rule = {});

}  // namespace quire::load
