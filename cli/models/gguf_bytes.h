// The bytes of a GGUF file's head, as the format has them.
//
// A value; one thread. Little-endian, whatever the machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quire::cli {

inline constexpr uint32_t kGgufVersion = 3;
inline constexpr int64_t kGgufAlignment = 32;  // of tensors, where a file names no other
inline int64_t GgufAligned(int64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

// Numbers of the format.
enum class GgufValueType : uint32_t {
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kString = 8,
  kArray = 9
};

class GgufBytes {
 public:
  template <class T>
  void Number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      text_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
    }
  }
  void Float(float value) { Number(std::bit_cast<uint32_t>(value)); }
  void String(std::string_view text) {
    Number(static_cast<uint64_t>(text.size()));
    text_ += text;
  }
  void Key(std::string_view key, GgufValueType type) {
    String(key);
    Number(static_cast<uint32_t>(type));
    ++keys_;
  }
  // A key with the bytes of its value as another file has them, the type first.
  void Pair(std::string_view key, std::span<const std::byte> value) {
    String(key);
    text_.append(reinterpret_cast<const char*>(value.data()), value.size());
    ++keys_;
  }
  void Array(std::string_view key, GgufValueType type, int64_t count) {
    Key(key, GgufValueType::kArray);
    Number(static_cast<uint32_t>(type));
    Number(static_cast<uint64_t>(count));
  }
  void Align() { text_.append(static_cast<size_t>(-text_.size() % kGgufAlignment), '\0'); }

  uint64_t keys() const { return keys_; }
  std::string& text() { return text_; }

 private:
  std::string text_;
  uint64_t keys_ = 0;
};

}  // namespace quire::cli
