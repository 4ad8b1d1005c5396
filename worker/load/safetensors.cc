#include "worker/load/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::load {
namespace {

using kernels::DType;

struct ElementType {
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> type;
};

constexpr ElementType kElementTypes[] = {
    {"F32", 4, DType::kF32},      {"F16", 2, DType::kF16},      {"BF16", 2, DType::kBF16},
    {"F64", 8, std::nullopt},     {"I64", 8, std::nullopt},     {"I32", 4, std::nullopt},
    {"I16", 2, std::nullopt},     {"I8", 1, std::nullopt},      {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},     {"U16", 2, std::nullopt},     {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},    {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt},
    {"F8_E8M0", 1, std::nullopt}, {"C64", 8, std::nullopt},
};

struct Entry {
  Tensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

absl::Status ReadShape(const json::Object& object, Tensor& tensor) {
  const json::Value* shape = json::Find(object, "shape");
  if (shape == nullptr) return InvalidArgument("has no \"shape\"");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* dimensions, json::AsArray(*shape, "shape"));
  if (dimensions->size() > static_cast<size_t>(kMaxTensorRank)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", dimensions->size(), " dimensions, at most ", kMaxTensorRank, " are read"));
  }
  for (const json::Value& dimension : *dimensions) {
    if (dimension.is_uint64() || dimension.is_double()) {
      return InvalidArgument("has a dimension that overflows");
    }
    QUIRE_ASSIGN_OR_RETURN(int64_t value, json::AsInt(dimension, "shape"));
    tensor.shape.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ReadOffsets(const json::Object& object, Entry& entry) {
  const json::Value* value = json::Find(object, "data_offsets");
  if (value == nullptr) return InvalidArgument("has no \"data_offsets\"");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* offsets, json::AsArray(*value, "data_offsets"));
  if (offsets->size() != 2) return InvalidArgument("needs two \"data_offsets\", begin and end");
  QUIRE_ASSIGN_OR_RETURN(int64_t begin, json::AsInt((*offsets)[0], "data_offsets"));
  QUIRE_ASSIGN_OR_RETURN(int64_t end, json::AsInt((*offsets)[1], "data_offsets"));
  if (begin < 0 || end < begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("has the impossible data_offsets [", begin, ", ", end, "]"));
  }
  entry.begin = static_cast<uint64_t>(begin);
  entry.end = static_cast<uint64_t>(end);
  return absl::OkStatus();
}

// The message of an error lacks file and tensor; the caller puts them before it.
absl::Status ReadEntry(const json::Value& value, Entry& entry) {
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "its header entry"));
  const json::Value* dtype = json::Find(*object, "dtype");
  if (dtype == nullptr) return InvalidArgument("has no \"dtype\"");
  QUIRE_ASSIGN_OR_RETURN(std::string_view type_name, json::AsString(*dtype, "dtype"));
  const auto* type =
      std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                   [&](const ElementType& known) { return known.name == type_name; });
  if (type == std::end(kElementTypes)) {
    return absl::InvalidArgumentError(absl::StrCat("has the unknown type \"", AbslView(type_name),
                                                   "\"; served are F32, F16 and BF16"));
  }
  entry.tensor.type_name = std::string(type_name);
  entry.tensor.type = type->type;
  QUIRE_RETURN_IF_ERROR(ReadShape(*object, entry.tensor));
  QUIRE_RETURN_IF_ERROR(ReadOffsets(*object, entry));
  QUIRE_ASSIGN_OR_RETURN(uint64_t needed, TensorBytes(entry.tensor.shape, 1, type->bytes));
  if (entry.end - entry.begin != needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", entry.end - entry.begin, " bytes by its data_offsets, its type ",
        entry.tensor.type_name, " and shape ", entry.tensor.ShapeText(), " need ", needed));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Entry>> ReadEntries(const json::Object& header,
                                               const std::string& path) {
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& member : header) {
    const std::string name(member.key().data(), member.key().size());
    if (name == "__metadata__") continue;
    Entry entry;
    entry.tensor.name = name;
    entry.tensor.file = path;
    if (absl::Status status = ReadEntry(member.value(), entry); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", name, "\" ", status.message()));
    }
    entries.push_back(std::move(entry));
  }
  // Ties (empty tensors) are put in order of their end, then of their name, so that messages do not
  // vary.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.end != b.end) return a.end < b.end;
    return a.tensor.name < b.tensor.name;
  });
  return entries;
}

}  // namespace

absl::Status ReadSafetensors(std::span<const std::byte> bytes, const std::string& path,
                             TensorTable& table) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a safetensors file: it has only ", bytes.size(), " bytes"));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const uint64_t rest = bytes.size() - sizeof(header_bytes);
  if (header_bytes > kMaxSafetensorsHeaderBytes || header_bytes > rest) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the header claims ", header_bytes, " bytes, the file has ", rest, " and at most ",
        kMaxSafetensorsHeaderBytes, " are read: truncated or no safetensors file"));
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof(header_bytes));
  json::Limits limits;
  limits.max_bytes = kMaxSafetensorsHeaderBytes;
  limits.max_depth = 8;
  absl::StatusOr<json::Value> header = json::Parse({text, header_bytes}, limits);
  if (!header.ok())
    return Annotate(header.status(), absl::StrCat(path, ": the safetensors header"));
  absl::StatusOr<const json::Object*> object = json::AsObject(*header, "the safetensors header");
  if (!object.ok()) return Annotate(object.status(), path);

  QUIRE_ASSIGN_OR_RETURN(std::vector<Entry> entries, ReadEntries(**object, path));
  const std::span<const std::byte> data = bytes.subspan(sizeof(header_bytes) + header_bytes);
  uint64_t expected = 0;
  for (Entry& entry : entries) {
    const std::string quoted = absl::StrCat(path, ": tensor \"", entry.tensor.name, "\" ");
    if (entry.begin != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat(quoted, "begins at ", entry.begin, ", ",
                       entry.begin < expected ? "overlapping the one before it, which ends at "
                                              : "leaving a gap after ",
                       expected));
    }
    if (entry.end > data.size()) {
      return absl::InvalidArgumentError(absl::StrCat(quoted, "ends at ", entry.end,
                                                     ", the file has ", data.size(),
                                                     " bytes of tensors: it is truncated"));
    }
    expected = entry.end;
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    QUIRE_RETURN_IF_ERROR(table.Add(std::move(entry.tensor)));
  }
  if (expected != data.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", data.size() - expected,
                                                   " bytes after the last tensor belong to none"));
  }
  return absl::OkStatus();
}

}  // namespace quire::load
