// A model's text bundle from its files: tokenizer, templates, special tokens, generation defaults.
//
// Pure functions over opened ModelFiles; called once, on the loading thread.
#pragma once

#include "absl/status/statusor.h"
#include "common/text/text_bundle.h"
#include "worker/load/model_files.h"

namespace quire::load {

// INVALID_ARGUMENT or NOT_FOUND names the file or metadata key that is missing or wrong.
absl::StatusOr<text::TextBundle> LoadTextBundle(const ModelFiles& files);

// The vocabulary in a GGUF file's metadata, unchecked beyond its types.
absl::StatusOr<text::GgufVocab> ReadGgufVocab(const GgufFile& file);

}  // namespace quire::load
