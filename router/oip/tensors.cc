#include "router/oip/tensors.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace quire::oip {
namespace {

constexpr size_t kLengthBytes = 4;

struct IntegerType {
  std::string_view name;
  size_t bytes;
  bool is_signed;
  std::string_view contents;
};
constexpr IntegerType kIntegerTypes[] = {
    {"INT8", 1, true, "int_contents"},     {"INT16", 2, true, "int_contents"},
    {"INT32", 4, true, "int_contents"},    {"INT64", 8, true, "int64_contents"},
    {"UINT8", 1, false, "uint_contents"},  {"UINT16", 2, false, "uint_contents"},
    {"UINT32", 4, false, "uint_contents"}, {"UINT64", 8, false, "uint64_contents"},
};

const IntegerType* IntegerTypeOf(std::string_view name) {
  for (const IntegerType& type : kIntegerTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

ApiError Bad(const InputTensor& tensor, std::string_view message) {
  return InvalidField(tensor.name, message);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size() && i < 8; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + (shape.size() > 8 ? ", …]" : "]");
}

std::optional<ApiError> CheckOne(const InputTensor& tensor) {
  const std::vector<int64_t>& shape = tensor.shape;
  if (shape == std::vector<int64_t>{1} || shape == std::vector<int64_t>{1, 1}) return std::nullopt;
  return Bad(tensor, "shape is " + ShapeText(shape) +
                         "; it must be [1] or [1, 1]: batches are not served, send a request each");
}

std::optional<ApiError> CheckContents(const InputTensor& tensor, std::string_view wanted) {
  if (tensor.contents.empty() || tensor.contents == wanted) return std::nullopt;
  return Bad(tensor, "its values are in " + std::string(tensor.contents) + "; those of " +
                         std::string(tensor.datatype) + " belong into " + std::string(wanted));
}

ApiError NoValues(const InputTensor& tensor) {
  return Bad(tensor, "has no values of its datatype: give contents or raw_input_contents");
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

void AppendLittleEndian(uint64_t value, size_t bytes, std::string& out) {
  for (size_t i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value & 0xFF);
}

// Values that do not fit are as invalid as negative ones.
int64_t IntegerOf(std::string_view bytes, const IntegerType& type) {
  const uint64_t bits = LittleEndian(bytes);
  if (!type.is_signed) return static_cast<int64_t>(std::min<uint64_t>(bits, INT64_MAX));
  const size_t shift = 64 - 8 * type.bytes;
  return static_cast<int64_t>(bits << shift) >> shift;
}

Result<InputTensor::Integers> Integers(const InputTensor& tensor, const IntegerType& type) {
  if (!tensor.raw) {
    if (auto problem = CheckContents(tensor, type.contents)) return *problem;
    const auto* values = std::get_if<InputTensor::Integers>(&tensor.values);
    if (values == nullptr) return NoValues(tensor);
    return *values;
  }
  if (tensor.raw->size() % type.bytes != 0) {
    return Bad(tensor, "its raw contents are " + std::to_string(tensor.raw->size()) +
                           " bytes, which is no multiple of " + std::to_string(type.bytes));
  }
  InputTensor::Integers values;
  values.reserve(tensor.raw->size() / type.bytes);
  for (size_t at = 0; at < tensor.raw->size(); at += type.bytes) {
    values.push_back(IntegerOf(tensor.raw->substr(at, type.bytes), type));
  }
  return values;
}

}  // namespace

Result<std::string_view> OneString(const InputTensor& tensor) {
  if (tensor.datatype != "BYTES") {
    return Bad(tensor, "datatype is \"" + std::string(tensor.datatype.substr(0, 32)) +
                           "\"; it must be BYTES");
  }
  if (auto problem = CheckOne(tensor)) return *problem;
  if (!tensor.raw) {
    if (auto problem = CheckContents(tensor, "bytes_contents")) return *problem;
    const auto* values = std::get_if<InputTensor::Strings>(&tensor.values);
    if (values == nullptr || values->empty()) return NoValues(tensor);
    if (values->size() == 1) return values->front();
    return Bad(tensor, "holds " + std::to_string(values->size()) + " elements; its shape says 1");
  }
  const std::string_view raw = *tensor.raw;
  if (raw.size() < kLengthBytes) return Bad(tensor, "its raw contents lack the element's length");
  const uint64_t length = LittleEndian(raw.substr(0, kLengthBytes));
  if (length != raw.size() - kLengthBytes) {
    return Bad(tensor, "its raw contents say that the element has " + std::to_string(length) +
                           " bytes; behind the length are " +
                           std::to_string(raw.size() - kLengthBytes));
  }
  return raw.substr(kLengthBytes);
}

Result<bool> OneBool(const InputTensor& tensor) {
  if (tensor.datatype != "BOOL") {
    return Bad(tensor, "datatype is \"" + std::string(tensor.datatype.substr(0, 32)) +
                           "\"; it must be BOOL");
  }
  if (auto problem = CheckOne(tensor)) return *problem;
  if (!tensor.raw) {
    if (auto problem = CheckContents(tensor, "bool_contents")) return *problem;
    const auto* values = std::get_if<InputTensor::Booleans>(&tensor.values);
    if (values == nullptr || values->empty()) return NoValues(tensor);
    if (values->size() == 1) return values->front() != 0;
    return Bad(tensor, "holds " + std::to_string(values->size()) + " elements; its shape says 1");
  }
  if (tensor.raw->size() == 1) return tensor.raw->front() != 0;
  return Bad(tensor, "its raw contents are " + std::to_string(tensor.raw->size()) +
                         " bytes; a BOOL of one element is 1");
}

Result<std::vector<TokenId>> TokenIds(const InputTensor& tensor) {
  const IntegerType* type = IntegerTypeOf(tensor.datatype);
  if (type == nullptr) {
    return Bad(tensor, "datatype is \"" + std::string(tensor.datatype.substr(0, 32)) +
                           "\"; it must be INT32 or another integer");
  }
  const std::vector<int64_t>& shape = tensor.shape;
  const bool flat = shape.size() == 1 || (shape.size() == 2 && shape[0] == 1);
  if (!flat || shape.back() < 1) {
    return Bad(tensor, "shape is " + ShapeText(shape) +
                           "; it must be [n] or [1, n] with n tokens, at least one");
  }
  Result<InputTensor::Integers> values = Integers(tensor, *type);
  if (!values.ok()) return values.error();
  if (values.value().size() != static_cast<uint64_t>(shape.back())) {
    return Bad(tensor, "holds " + std::to_string(values.value().size()) +
                           " elements; its shape says " + std::to_string(shape.back()));
  }
  std::vector<TokenId> ids;
  ids.reserve(values.value().size());
  for (const int64_t id : values.value()) {
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) {
      return Bad(tensor, "token id " + std::to_string(id) + " is outside [0, 2147483647]");
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

std::string_view OutputTensor::Datatype() const {
  constexpr std::string_view kNames[] = {"BYTES", "INT32", "UINT32", "FP32"};
  return kNames[values.index()];
}

size_t OutputTensor::Elements() const {
  return std::visit([](const auto& list) { return list.size(); }, values);
}

std::string OutputTensor::Raw() const {
  std::string out;
  if (const auto* strings = std::get_if<Strings>(&values)) {
    for (const std::string& s : *strings) {
      AppendLittleEndian(s.size(), kLengthBytes, out);
      out += s;
    }
  } else if (const auto* ids = std::get_if<Ids>(&values)) {
    for (const TokenId id : *ids) AppendLittleEndian(static_cast<uint32_t>(id), 4, out);
  } else if (const auto* counts = std::get_if<Counts>(&values)) {
    for (const uint32_t count : *counts) AppendLittleEndian(count, 4, out);
  } else {
    for (const float value : std::get<Floats>(values)) {
      AppendLittleEndian(std::bit_cast<uint32_t>(value), 4, out);
    }
  }
  return out;
}

std::string NamesOf(const std::vector<TensorFacts>& facts) {
  std::string names;
  for (const TensorFacts& fact : facts) {
    if (!names.empty()) names += ", ";
    names += fact.name;
  }
  return names;
}

}  // namespace quire::oip
