// Makes model files for tests: safetensors and GGUF bytes, right or wrong on purpose, and folders
// to hold them.
//
// Each test owns what it makes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace quire::load {

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The bytes of a safetensors file with this header, and `data_bytes` zero bytes of tensors.
inline std::string Safetensors(std::string_view header, size_t data_bytes) {
  std::string out;
  Append<uint64_t>(out, header.size());
  out += header;
  out.append(data_bytes, '\0');
  return out;
}

struct Shape {
  std::vector<int> dimensions;
  std::string type = "BF16";
};
using Checkpoint = std::map<std::string, Shape>;  // by tensor name

// The bytes of a safetensors file with these tensors, all zero.
inline std::string Safetensors(const Checkpoint& checkpoint) {
  std::string header = "{";
  size_t offset = 0;
  for (const auto& [name, shape] : checkpoint) {
    size_t bytes = shape.type == "F32" ? 4 : shape.type == "U8" ? 1 : 2;
    std::string dimensions;
    for (int dimension : shape.dimensions) {
      bytes *= static_cast<size_t>(dimension);
      dimensions += (dimensions.empty() ? "" : ",") + std::to_string(dimension);
    }
    header += (offset == 0 ? "\"" : ",\"") + name + R"(":{"dtype":")" + shape.type +
              R"(","shape":[)" + dimensions + R"(],"data_offsets":[)" + std::to_string(offset) +
              "," + std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  return Safetensors(header + "}", offset);
}

// Writes GGUF piece by piece; nothing is checked, so that wrong files can be made.
class GgufMaker {
 public:
  static std::string Text(std::string_view text) {
    std::string out;
    Append<uint64_t>(out, text.size());
    return out + std::string(text);
  }

  GgufMaker& Pair(std::string_view key, uint32_t type, std::string_view value) {
    pairs_ += Text(key);
    Append<uint32_t>(pairs_, type);
    pairs_ += value;
    ++pair_count;
    return *this;
  }
  GgufMaker& String(std::string_view key, std::string_view value) {
    return Pair(key, 8, Text(value));
  }
  GgufMaker& Uint32(std::string_view key, uint32_t value) {
    std::string bytes;
    Append(bytes, value);
    return Pair(key, 4, bytes);
  }
  GgufMaker& Float32(std::string_view key, float value) {
    std::string bytes;
    Append(bytes, value);
    return Pair(key, 6, bytes);
  }
  GgufMaker& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    Append<uint32_t>(bytes, 8);
    Append<uint64_t>(bytes, values.size());
    for (const std::string& value : values) bytes += Text(value);
    return Pair(key, 9, bytes);
  }
  // `dimensions` innermost first, as the format has them.
  GgufMaker& Tensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                    uint64_t offset) {
    tensors_ += Text(name);
    Append<uint32_t>(tensors_, static_cast<uint32_t>(dimensions.size()));
    for (uint64_t dimension : dimensions) Append(tensors_, dimension);
    Append(tensors_, type);
    Append(tensors_, offset);
    ++tensor_count;
    return *this;
  }
  std::string Make(size_t data_bytes, size_t alignment = 32) const {
    std::string out = magic;
    Append(out, version);
    Append(out, tensor_count);
    Append(out, pair_count);
    out += pairs_ + tensors_;
    out.append((alignment - out.size() % alignment) % alignment, '\0');
    out.append(data_bytes, '\0');
    return out;
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t tensor_count = 0;
  uint64_t pair_count = 0;

 private:
  std::string pairs_;
  std::string tensors_;
};

// A folder that goes with the test.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "/quire-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace quire::load
