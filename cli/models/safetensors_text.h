// The texts of a checkpoint in safetensors: a file's head, its name among several, and their index.
//
// Pure, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quire::cli {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the format spells it
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // in the data
};

// The length and the JSON in front of the data, padded to eight bytes.
std::string SafetensorsHead(const std::vector<SafetensorsEntry>& entries);

// "model.safetensors", or "model-00001-of-00003.safetensors" for the first of three.
std::string SafetensorsName(size_t index, size_t count);

// model.safetensors.index.json: tensor and file of each.
std::string SafetensorsIndex(const std::vector<std::pair<std::string, std::string>>& places,
                             int64_t total_bytes);

}  // namespace quire::cli
