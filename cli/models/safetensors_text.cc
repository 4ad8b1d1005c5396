#include "cli/models/safetensors_text.h"

#include <algorithm>

#include "common/json/json.h"

namespace quire::cli {

std::string SafetensorsHead(const std::vector<SafetensorsEntry>& entries) {
  json::Object object;
  object["__metadata__"] = json::Object{{"format", "pt"}};
  for (const SafetensorsEntry& tensor : entries) {
    json::Array dims;
    for (const int64_t dim : tensor.shape) dims.push_back(dim);
    json::Object entry;
    entry["dtype"] = json::BoostView(tensor.dtype);
    entry["shape"] = std::move(dims);
    entry["data_offsets"] = json::Array{tensor.begin, tensor.end};
    object[tensor.name] = std::move(entry);
  }
  std::string text = json::Serialize(object);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string head;
  for (int i = 0; i < 8; ++i) head.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));
  return head + text;
}

std::string SafetensorsName(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  const auto number = [](size_t n) {
    std::string digits = std::to_string(n);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  return "model-" + number(index + 1) + "-of-" + number(count) + ".safetensors";
}

std::string SafetensorsIndex(const std::vector<std::pair<std::string, std::string>>& places,
                             int64_t total_bytes) {
  json::Object map;
  for (const auto& [tensor, file] : places) map[tensor] = json::BoostView(file);
  json::Object index;
  index["metadata"] = json::Object{{"total_size", total_bytes}};
  index["weight_map"] = std::move(map);
  return json::Serialize(index) + "\n";
}

}  // namespace quire::cli
