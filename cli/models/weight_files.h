// Writes a made-up model as a Hugging Face folder, or as one with a GGUF file: streaming, by
// several threads, in little memory.
//
// Blocking; threads of its own that live within the call. At most kPieceBytes per thread are held,
// beside the tokenizer's text.
//  1. config.json, or the name of the GGUF file, comes last and whole: a folder without it is no
//     model for any reader, so that whatever ends the writer (also kill -9) leaves nothing that
//     loads by half.
//  2. On an error or a cancel all that was written goes again, the folder too if it was made here.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/models/weight_shapes.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr int64_t kPieceBytes = 4 << 20;
inline constexpr int kMaxWeightThreads = 16;

struct WeightFilesOptions {
  const ModelShape* shape = nullptr;
  int layers = 0;  // 1 … shape->layers
  uint64_t seed = 0;
  WeightType type = WeightType::kBf16;
  bool gguf = false;  // one GGUF file, of kQ4K or kF16
  std::string folder;
  int threads = 1;
  int64_t shard_bytes = int64_t{4} << 30;          // of tensors in a file, at least one tensor
  const std::atomic<bool>* interrupted = nullptr;  // looked at after every piece; or null
};

// One *.safetensors or *.gguf: its name, the bytes in front of the data, and the place of each
// tensor in the data.
struct WeightShard {
  std::string name;
  std::string head;
  std::vector<ShapeTensor> tensors;
  std::vector<WeightType> types;  // of each tensor
  std::vector<int64_t> offsets;   // within the data, one more than tensors: the last is their end
  int64_t bytes() const { return static_cast<int64_t>(head.size()) + offsets.back(); }
};

// Pure: how the tensors are distributed over files, in their order.
std::vector<WeightShard> LayOutShards(const std::vector<ShapeTensor>& tensors, WeightType type,
                                      int64_t shard_bytes);

// Bytes written. INVALID_ARGUMENT for a folder that holds something, RESOURCE_EXHAUSTED for a disk
// without room, CANCELLED when interrupted.
absl::StatusOr<int64_t> WriteModelFolder(const WeightFilesOptions& options);

}  // namespace quire::cli
