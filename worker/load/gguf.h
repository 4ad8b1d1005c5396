// Reads a GGUF file (versions 2 and 3, little-endian): metadata and the place of each tensor.
//
// The format: the GGUF specification of the ggml project. Read as hostile input: every length is
// checked against the remaining bytes before it is used, so the file's size bounds work and memory.
// 1. Views (strings, arrays, tensors) point into the mapped file and live as long as it does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/load/tensor_table.h"

namespace quire::load {

inline constexpr uint64_t kMaxGgufPairs = 65'536;
inline constexpr uint64_t kMaxGgufTensors = 1'000'000;
inline constexpr uint64_t kMaxGgufKeyBytes = 65'535;
inline constexpr uint64_t kMaxGgufStringBytes = 64 << 20;
inline constexpr uint64_t kMaxGgufArrayElements = 1 << 26;     // walked, not decoded
inline constexpr uint64_t kMaxGgufArrayTextBytes = 128 << 20;  // of strings that are decoded
inline constexpr uint64_t kMaxGgufLayers = 4'096;
inline constexpr uint64_t kMaxGgufMerges = 4'000'000;  // the largest vocabularies have some 500,000
inline constexpr int kMaxGgufArrayDepth = 4;
inline constexpr uint64_t kMaxGgufAlignment = 1 << 20;
inline constexpr int kMaxGgufRank = 4;

// The format defines the numbers.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// An array of the metadata, decoded on request. Its bytes have been walked once, so decoding cannot
// run past them. An element takes a byte or eight in the file and up to 48 when decoded: the caller
// states the most elements that there may be, and an array with more is not decoded.
struct GgufArray {
  GgufType type = GgufType::kUint8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;

  // INVALID_ARGUMENT when the elements are of another type, or more than `most`.
  absl::StatusOr<std::vector<std::string_view>> Strings(uint64_t most) const;
  absl::StatusOr<std::vector<int64_t>> Integers(uint64_t most) const;  // booleans as 0 and 1
  absl::StatusOr<std::vector<double>> Numbers(uint64_t most) const;    // integers too

 private:
  absl::Status CheckCount(uint64_t most) const;
};

// A key, and the bytes of its value in the file with the number of its type before them.
struct GgufPair {
  std::string_view key;
  std::span<const std::byte> bytes;
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

// The number of a type in the list of tensors. Requires one of GGUF's types.
uint32_t GgufTypeNumber(kernels::DType type);

class GgufFile {
 public:
  // INVALID_ARGUMENT naming the file and what is wrong in it. `path` is for messages and
  // TensorInfo.
  static absl::StatusOr<GgufFile> Parse(std::span<const std::byte> bytes, const std::string& path);

  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  // The metadata in the order of the file.
  const std::vector<GgufPair>& pairs() const { return pairs_; }
  TensorTable& tensors() { return tensors_; }
  const TensorTable& tensors() const { return tensors_; }

  bool Has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // NOT_FOUND naming the key when it is absent, INVALID_ARGUMENT when it has another type.
  absl::StatusOr<int64_t> Integer(std::string_view key) const;
  absl::StatusOr<double> Number(std::string_view key) const;
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<GgufArray> Array(std::string_view key) const;

 private:
  friend class GgufParser;

  std::string path_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufPair> pairs_;
  TensorTable tensors_;
};

}  // namespace quire::load
