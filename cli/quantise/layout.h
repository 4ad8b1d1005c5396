// The place and the type that each tensor of a model gets in its quantised copy.
//
// Values that point into the model's mapped files. Pure, except for the names in a folder, which
// it lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/quantise/formats.h"
#include "common/status.h"
#include "worker/load/model_files.h"

namespace quire::cli {

// One tensor of the copy, or one of the two that a packed matrix becomes.
struct OutputPart {
  size_t file = 0;
  int64_t offset = 0;     // in the file, its head included
  int64_t row_bytes = 0;  // of each row of the source
};

struct QuantisedTensor {
  const load::Tensor* source = nullptr;
  int64_t rows = 1, cols = 0;
  bool copied = false;                         // byte for byte
  std::optional<Packing> packing;              // in a checkpoint
  kernels::DType type = kernels::DType::kF32;  // else: in a GGUF file
  OutputPart codes;
  OutputPart scales;  // of packed matrices
};

struct QuantisedFile {
  std::string name;
  std::string head;
  int64_t bytes = 0;  // head and data
  std::vector<std::pair<int64_t, std::string>> small_parts =
      {};  // offset and bytes: shapes of matrices
};

struct QuantisedModel {
  std::vector<QuantisedFile> files;
  std::vector<QuantisedTensor> tensors;
  std::vector<std::string>
      companions;  // files of a checkpoint that are copied: tokenizer, template
  // Name and text of files that are written, config.json last; none for GGUF.
  std::vector<std::pair<std::string, std::string>> texts;
  int64_t bytes() const;
};

// The most files beside the weights, and bytes of one of them, which is held while it is copied.
inline constexpr size_t kMaxCompanions = 100;
inline constexpr size_t kMaxCompanionBytes = 64 << 20;

// The copy of a model in floats. INVALID_ARGUMENT for one that is quantised, for a format of the
// other kind of file, and where no matrix can have it.
absl::StatusOr<QuantisedModel> LayOutQuantised(const load::ModelFiles& files,
                                               const QuantiseFormat& format);

// The two kinds of it.
absl::StatusOr<QuantisedModel> LayOutQuantisedGguf(const load::GgufFile& file,
                                                   const QuantiseFormat& format);
absl::StatusOr<QuantisedModel> LayOutCheckpoint(const load::ModelFiles& files,
                                                const QuantiseFormat& format);

}  // namespace quire::cli
