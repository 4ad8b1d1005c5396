#include "worker/load/gguf.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/load/checked.h"
#include "worker/load/gguf_types.h"

namespace quire::load {
namespace {

// Bytes of a scalar of the format; 0 for strings, arrays and unknown type numbers.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

GgufValue LoadScalar(GgufType type, const std::byte* data) {
  switch (type) {
    case GgufType::kUint8:
      return uint64_t{Load<uint8_t>(data)};
    case GgufType::kInt8:
      return int64_t{Load<int8_t>(data)};
    case GgufType::kUint16:
      return uint64_t{Load<uint16_t>(data)};
    case GgufType::kInt16:
      return int64_t{Load<int16_t>(data)};
    case GgufType::kUint32:
      return uint64_t{Load<uint32_t>(data)};
    case GgufType::kInt32:
      return int64_t{Load<int32_t>(data)};
    case GgufType::kFloat32:
      return double{Load<float>(data)};
    case GgufType::kBool:
      return Load<uint8_t>(data) != 0;
    case GgufType::kUint64:
      return Load<uint64_t>(data);
    case GgufType::kInt64:
      return Load<int64_t>(data);
    default:
      return Load<double>(data);
  }
}

}  // namespace

// One pass over the file: `position_` only moves forward, `Take` is the only place that reads.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& path)
      : bytes_(bytes), path_(path) {}

  absl::StatusOr<GgufFile> Run();

 private:
  struct PendingTensor {
    Tensor tensor;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }
  absl::Status Truncated(const std::string& what) const {
    return Error(absl::StrCat("the file ends inside ", what, " (it has ", bytes_.size(),
                              " bytes): it is truncated or its header lies"));
  }

  bool Take(uint64_t count, const std::byte** data);
  template <typename T>
  bool Read(T* value);
  bool ReadString(std::string_view* text, uint64_t limit);

  absl::Status ReadHeader();
  absl::Status ReadPair();
  absl::StatusOr<GgufValue> ReadValue(GgufType type, const std::string& key);
  absl::StatusOr<GgufArray> ReadArray(const std::string& key, int depth);
  absl::Status ReadTensor();
  absl::Status PlaceTensors();

  std::span<const std::byte> bytes_;
  const std::string& path_;
  uint64_t position_ = 0;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
  std::vector<PendingTensor> pending_;
  GgufFile file_;
};

bool GgufParser::Take(uint64_t count, const std::byte** data) {
  if (count > bytes_.size() - position_) return false;
  *data = bytes_.data() + position_;
  position_ += count;
  return true;
}

template <typename T>
bool GgufParser::Read(T* value) {
  const std::byte* data = nullptr;
  if (!Take(sizeof(T), &data)) return false;
  std::memcpy(value, data, sizeof(T));
  return true;
}

bool GgufParser::ReadString(std::string_view* text, uint64_t limit) {
  uint64_t length = 0;
  const std::byte* data = nullptr;
  if (!Read(&length) || length > limit || !Take(length, &data)) return false;
  *text = {reinterpret_cast<const char*>(data), length};
  return true;
}

absl::Status GgufParser::ReadHeader() {
  const std::byte* magic = nullptr;
  if (!Take(4, &magic) || std::memcmp(magic, "GGUF", 4) != 0) {
    return Error("not a GGUF file: it does not begin with \"GGUF\"");
  }
  if (!Read(&file_.version_)) return Truncated("the header");
  if (file_.version_ != 2 && file_.version_ != 3) {
    const bool swapped = (file_.version_ & 0xffff) == 0 && file_.version_ != 0;
    return Error(swapped ? "a big-endian GGUF file; only little-endian ones are served"
                         : absl::StrCat("GGUF version ", file_.version_,
                                        " is not served, versions 2 and 3 are"));
  }
  if (!Read(&tensor_count_) || !Read(&pair_count_)) return Truncated("the header");
  if (tensor_count_ > kMaxGgufTensors) {
    return Error(absl::StrCat("the header counts ", tensor_count_, " tensors, at most ",
                              kMaxGgufTensors, " are read"));
  }
  if (pair_count_ > kMaxGgufPairs) {
    return Error(absl::StrCat("the header counts ", pair_count_, " metadata entries, at most ",
                              kMaxGgufPairs, " are read"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufArray> GgufParser::ReadArray(const std::string& key, int depth) {
  if (depth > kMaxGgufArrayDepth) {
    return Error(
        absl::StrCat("metadata \"", key, "\" nests arrays deeper than ", kMaxGgufArrayDepth));
  }
  uint32_t number = 0;
  GgufArray array;
  if (!Read(&number) || !Read(&array.count))
    return Truncated(absl::StrCat("metadata \"", key, "\""));
  array.type = static_cast<GgufType>(number);
  if (array.count > kMaxGgufArrayElements) {
    return Error(absl::StrCat("metadata \"", key, "\" has ", array.count, " elements, at most ",
                              kMaxGgufArrayElements, " are read"));
  }
  const uint64_t begin = position_;
  if (const uint64_t size = ScalarBytes(array.type); size > 0) {
    const std::byte* data = nullptr;
    if (!Take(array.count * size, &data)) return Truncated(absl::StrCat("metadata \"", key, "\""));
  } else if (array.type == GgufType::kString) {
    for (uint64_t i = 0; i < array.count; ++i) {
      std::string_view text;
      if (!ReadString(&text, kMaxGgufStringBytes))
        return Truncated(absl::StrCat("metadata \"", key, "\""));
    }
  } else if (array.type == GgufType::kArray) {
    for (uint64_t i = 0; i < array.count; ++i) {
      if (auto inner = ReadArray(key, depth + 1); !inner.ok()) return inner.status();
    }
  } else {
    return Error(absl::StrCat("metadata \"", key, "\" is an array of the unknown type ", number));
  }
  array.bytes = bytes_.subspan(begin, position_ - begin);
  return array;
}

absl::StatusOr<GgufValue> GgufParser::ReadValue(GgufType type, const std::string& key) {
  if (type == GgufType::kArray) {
    absl::StatusOr<GgufArray> array = ReadArray(key, 1);
    if (!array.ok()) return array.status();
    return GgufValue(*array);
  }
  if (type == GgufType::kString) {
    std::string_view text;
    if (!ReadString(&text, kMaxGgufStringBytes))
      return Truncated(absl::StrCat("metadata \"", key, "\""));
    return GgufValue(text);
  }
  const uint64_t size = ScalarBytes(type);
  if (size == 0) {
    return Error(
        absl::StrCat("metadata \"", key, "\" has the unknown type ", static_cast<uint32_t>(type)));
  }
  const std::byte* data = nullptr;
  if (!Take(size, &data)) return Truncated(absl::StrCat("metadata \"", key, "\""));
  return LoadScalar(type, data);
}

absl::Status GgufParser::ReadPair() {
  std::string_view name;
  uint32_t type = 0;
  if (!ReadString(&name, kMaxGgufKeyBytes) || !Read(&type)) return Truncated("the metadata");
  const uint64_t begin = position_ - sizeof(type);
  std::string key(name);
  absl::StatusOr<GgufValue> value = ReadValue(static_cast<GgufType>(type), key);
  if (!value.ok()) return value.status();
  if (file_.metadata_.contains(key)) {
    return Error(absl::StrCat("metadata \"", key, "\" is there twice"));
  }
  file_.metadata_.emplace(std::move(key), *value);
  file_.pairs_.push_back({name, bytes_.subspan(begin, position_ - begin)});
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensor() {
  PendingTensor pending;
  std::string_view name;
  uint32_t rank = 0;
  if (!ReadString(&name, kMaxGgufKeyBytes) || !Read(&rank)) return Truncated("the list of tensors");
  pending.tensor.name = std::string(name);
  pending.tensor.file = path_;
  const std::string quoted = absl::StrCat("tensor \"", pending.tensor.name, "\" ");
  if (rank > static_cast<uint32_t>(kMaxGgufRank)) {
    return Error(
        absl::StrCat(quoted, "has ", rank, " dimensions, at most ", kMaxGgufRank, " are read"));
  }
  pending.tensor.shape.resize(rank);
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t dimension = 0;
    if (!Read(&dimension)) return Truncated("the list of tensors");
    // The file names the innermost dimension first. Values beyond the limit stay beyond it.
    pending.tensor.shape[rank - 1 - i] =
        static_cast<int64_t>(std::min(dimension, static_cast<uint64_t>(kMaxTensorDimension) + 1));
  }
  uint32_t number = 0;
  if (!Read(&number) || !Read(&pending.offset)) return Truncated("the list of tensors");
  const GgufTensorType* type = FindGgufTensorType(number);
  if (type == nullptr || !type->type.has_value()) {
    const std::string spelled = type == nullptr ? absl::StrCat("number ", number) : type->name;
    return Error(absl::StrCat(quoted, "has type ", spelled, "; served are ", kServedGgufTypes));
  }
  pending.tensor.type = type->type;
  pending.tensor.type_name = type->name;
  absl::StatusOr<uint64_t> size =
      TensorBytes(pending.tensor.shape, static_cast<uint64_t>(kernels::BlockElements(*type->type)),
                  static_cast<uint64_t>(kernels::BlockBytes(*type->type)));
  if (!size.ok()) return Error(absl::StrCat(quoted, size.status().message()));
  pending.size = *size;
  pending_.push_back(std::move(pending));
  return absl::OkStatus();
}

absl::Status GgufParser::PlaceTensors() {
  uint64_t alignment = 32;
  if (file_.Has("general.alignment")) {
    absl::StatusOr<int64_t> value = file_.Integer("general.alignment");
    if (!value.ok()) return value.status();
    if (*value <= 0 || *value % 8 != 0 || static_cast<uint64_t>(*value) > kMaxGgufAlignment) {
      return Error(absl::StrCat("general.alignment is ", *value,
                                "; it must be a multiple of 8, at most ", kMaxGgufAlignment));
    }
    alignment = static_cast<uint64_t>(*value);
  }
  const std::optional<uint64_t> start = CheckedAlign(position_, alignment);
  const uint64_t available =
      start.has_value() && *start < bytes_.size() ? bytes_.size() - *start : 0;
  std::sort(pending_.begin(), pending_.end(),
            [](const PendingTensor& a, const PendingTensor& b) { return a.offset < b.offset; });
  uint64_t end_of_last = 0;
  for (PendingTensor& pending : pending_) {
    const std::string quoted = absl::StrCat("tensor \"", pending.tensor.name, "\" ");
    const std::optional<uint64_t> end = CheckedAdd(pending.offset, pending.size);
    if (pending.offset % alignment != 0) {
      return Error(absl::StrCat(quoted, "begins at ", pending.offset,
                                ", no multiple of the alignment ", alignment));
    }
    if (!end.has_value() || *end > available) {
      return Error(absl::StrCat(quoted, "needs ", pending.size, " bytes at offset ", pending.offset,
                                ", the file has ", available,
                                " bytes of tensors: it is truncated"));
    }
    if (pending.offset < end_of_last) {
      return Error(
          absl::StrCat(quoted, "overlaps the tensor before it at offset ", pending.offset));
    }
    end_of_last = *end;
    if (pending.size > 0)
      pending.tensor.bytes = bytes_.subspan(*start + pending.offset, pending.size);
    if (absl::Status status = file_.tensors_.Add(std::move(pending.tensor)); !status.ok()) {
      return absl::InvalidArgumentError(status.message());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufFile> GgufParser::Run() {
  file_.path_ = path_;
  if (absl::Status status = ReadHeader(); !status.ok()) return status;
  for (uint64_t i = 0; i < pair_count_; ++i) {
    if (absl::Status status = ReadPair(); !status.ok()) return status;
  }
  if (file_.Has("split.count")) {
    absl::StatusOr<int64_t> count = file_.Integer("split.count");
    if (!count.ok()) return count.status();
    if (*count > 1) {
      return Error(absl::StrCat("one of ", *count,
                                " parts of a split GGUF file; merge them into one "
                                "file first (llama-gguf-split --merge)"));
    }
  }
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    if (absl::Status status = ReadTensor(); !status.ok()) return status;
  }
  if (absl::Status status = PlaceTensors(); !status.ok()) return status;
  return std::move(file_);
}

uint32_t GgufTypeNumber(kernels::DType type) {
  const auto* place = std::ranges::find(kGgufTensorTypes, type, &GgufTensorType::type);
  QUIRE_CHECK(place != std::end(kGgufTensorTypes));
  return place->number;
}

absl::StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes,
                                         const std::string& path) {
  return GgufParser(bytes, path).Run();
}

absl::StatusOr<int64_t> GgufFile::Integer(std::string_view key) const {
  const auto place = metadata_.find(key);
  if (place == metadata_.end()) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": metadata \"", AbslView(key), "\" is missing"));
  }
  if (const auto* value = std::get_if<int64_t>(&place->second)) return *value;
  if (const auto* value = std::get_if<uint64_t>(&place->second);
      value != nullptr && *value <= static_cast<uint64_t>(INT64_MAX)) {
    return static_cast<int64_t>(*value);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": metadata \"", AbslView(key), "\" must be an integer"));
}

absl::StatusOr<double> GgufFile::Number(std::string_view key) const {
  const auto place = metadata_.find(key);
  if (place != metadata_.end()) {
    if (const auto* value = std::get_if<double>(&place->second)) return *value;
  }
  absl::StatusOr<int64_t> integer = Integer(key);
  if (integer.ok()) return static_cast<double>(*integer);
  if (absl::IsNotFound(integer.status())) return integer.status();
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": metadata \"", AbslView(key), "\" must be a number"));
}

absl::StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  const auto place = metadata_.find(key);
  if (place == metadata_.end()) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": metadata \"", AbslView(key), "\" is missing"));
  }
  if (const auto* value = std::get_if<std::string_view>(&place->second)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": metadata \"", AbslView(key), "\" must be a string"));
}

absl::StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  const auto place = metadata_.find(key);
  if (place == metadata_.end()) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": metadata \"", AbslView(key), "\" is missing"));
  }
  if (const auto* value = std::get_if<bool>(&place->second)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": metadata \"", AbslView(key), "\" must be true or false"));
}

absl::StatusOr<GgufArray> GgufFile::Array(std::string_view key) const {
  const auto place = metadata_.find(key);
  if (place == metadata_.end()) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": metadata \"", AbslView(key), "\" is missing"));
  }
  if (const auto* value = std::get_if<GgufArray>(&place->second)) return *value;
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": metadata \"", AbslView(key), "\" must be an array"));
}

absl::Status GgufArray::CheckCount(uint64_t most) const {
  if (count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", count, " elements, at most ", most, " are read"));
}

absl::StatusOr<std::vector<std::string_view>> GgufArray::Strings(uint64_t most) const {
  if (type != GgufType::kString) return absl::InvalidArgumentError("must be an array of strings");
  QUIRE_RETURN_IF_ERROR(CheckCount(most));
  if (bytes.size() > kMaxGgufArrayTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", bytes.size(), " bytes of strings, at most ", kMaxGgufArrayTextBytes, " are read"));
  }
  std::vector<std::string_view> strings;
  strings.reserve(count);
  const std::byte* at = bytes.data();
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = Load<uint64_t>(at);
    strings.emplace_back(reinterpret_cast<const char*>(at + sizeof(length)), length);
    at += sizeof(length) + length;
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> GgufArray::Integers(uint64_t most) const {
  const uint64_t size = ScalarBytes(type);
  if (size == 0 || type == GgufType::kFloat32 || type == GgufType::kFloat64) {
    return absl::InvalidArgumentError("must be an array of integers");
  }
  QUIRE_RETURN_IF_ERROR(CheckCount(most));
  std::vector<int64_t> integers;
  integers.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const GgufValue value = LoadScalar(type, bytes.data() + i * size);
    if (const auto* natural = std::get_if<uint64_t>(&value)) {
      integers.push_back(
          static_cast<int64_t>(std::min(*natural, static_cast<uint64_t>(INT64_MAX))));
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      integers.push_back(*integer);
    } else {
      integers.push_back(std::get<bool>(value) ? 1 : 0);
    }
  }
  return integers;
}

absl::StatusOr<std::vector<double>> GgufArray::Numbers(uint64_t most) const {
  QUIRE_RETURN_IF_ERROR(CheckCount(most));
  if (type != GgufType::kFloat32 && type != GgufType::kFloat64) {
    absl::StatusOr<std::vector<int64_t>> integers = Integers(most);
    if (!integers.ok()) return absl::InvalidArgumentError("must be an array of numbers");
    return std::vector<double>(integers->begin(), integers->end());
  }
  const uint64_t size = ScalarBytes(type);
  std::vector<double> numbers;
  numbers.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    numbers.push_back(std::get<double>(LoadScalar(type, bytes.data() + i * size)));
  }
  return numbers;
}

}  // namespace quire::load
