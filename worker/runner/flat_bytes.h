// Plain values as flat bytes, little endian and without padding: how packets, results and other
// messages between the engine and its ranks are written and read.
//
// Writing never fails. Reading trusts nothing: counts are compared with a limit and with the
// remaining bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace quire {

static_assert(std::endian::native == std::endian::little, "flat bytes are little endian");

// Types whose bytes are sent as they are in memory.
template <class T>
concept FlatPlain = std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>;

// Writes over the vector's content, so that a packet of the usual size needs no growth; End cuts
// off the rest.
class FlatWriter {
 public:
  explicit FlatWriter(std::vector<std::byte>& out) : out_(out) {}

  // Space for this many bytes, which the caller writes.
  std::byte* Grow(size_t size) {
    if (out_.size() - at_ < size) out_.resize(std::max(out_.size() * 2, at_ + size));
    at_ += size;
    return out_.data() + at_ - size;
  }
  void PutBytes(const void* bytes, size_t size) {
    std::byte* const to = Grow(size);
    if (size > 0) std::memcpy(to, bytes, size);
  }
  template <class T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    PutBytes(&value, sizeof(T));
  }
  template <FlatPlain T>
  void PutList(const std::vector<T>& values) {
    Put(static_cast<uint32_t>(values.size()));
    PutBytes(values.data(), values.size() * sizeof(T));
  }
  void PutText(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    PutBytes(text.data(), text.size());
  }
  void End() { out_.resize(at_); }

 private:
  std::vector<std::byte>& out_;
  size_t at_ = 0;
};

// Reads until the first fault, then returns zeros; callers check for the fault at the end of each
// part.
class FlatReader {
 public:
  explicit FlatReader(std::span<const std::byte> in) : in_(in) {}

  template <class T>
  T Get() {
    T value{};
    if (!ok_ || in_.size() - at_ < sizeof(T)) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, in_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  bool GetFlag() {
    const uint8_t value = Get<uint8_t>();
    if (value > 1) ok_ = false;
    return value == 1;
  }
  // A count of elements of at least `element_bytes` each: never more than the remaining bytes
  // allow.
  size_t Count(size_t element_bytes, int64_t limit) {
    const uint32_t count = Get<uint32_t>();
    if (count > limit || count > (in_.size() - at_) / element_bytes) ok_ = false;
    return ok_ ? count : 0;
  }
  template <FlatPlain T>
  void GetList(std::vector<T>& values, int64_t limit) {
    values.resize(Count(sizeof(T), limit));
    if (values.empty()) return;
    std::memcpy(values.data(), in_.data() + at_, values.size() * sizeof(T));
    at_ += values.size() * sizeof(T);
  }
  std::string GetText(int64_t limit) {
    std::string text(Count(1, limit), '\0');
    std::memcpy(text.data(), in_.data() + at_, text.size());
    at_ += text.size();
    return text;
  }
  int32_t InRange(int64_t low, int64_t end) {
    const int32_t value = Get<int32_t>();
    if (value < low || value >= end) ok_ = false;
    return ok_ ? value : static_cast<int32_t>(low);
  }
  bool ok() const { return ok_; }
  bool AtEnd() const { return at_ == in_.size(); }

 private:
  std::span<const std::byte> in_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace quire
