#include "router/grpc/parsed_bytes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>

#include <cstdint>

namespace quire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;

// Measured by a test: the most memory of each, including its list, which doubles as it grows, and
// the allocator's overhead.
constexpr size_t kBytesPerMessage = 320;
constexpr size_t kBytesPerString = 80;
constexpr size_t kBytesPerNumber = 24;
constexpr size_t kBytesPerUnknown = 96;
constexpr int kMaxDepth = 100;  // Protobuf reads no deeper

enum WireType : uint32_t { kVarint, kFixed64, kBytes, kGroup, kGroupEnd, kFixed32 };

size_t BytesOf(const Descriptor& type, CodedInputStream& in, int depth);

// A field with a length; true when its content has been read.
bool AddBytes(const FieldDescriptor* field, CodedInputStream& in, int depth, size_t& bytes) {
  uint32_t size = 0;
  if (!in.ReadVarint32(&size)) return false;
  if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
    const CodedInputStream::Limit limit = in.PushLimit(static_cast<int>(size));
    bytes += BytesOf(*field->message_type(), in, depth + 1);
    const bool whole = in.BytesUntilLimit() == 0;
    in.PopLimit(limit);
    return whole;
  }
  if (!in.Skip(static_cast<int>(size))) return false;
  if (field != nullptr && field->is_packable()) {
    bytes += kBytesPerNumber * size_t{size};  // a byte each at least
  } else {
    // A large block ends with its page.
    bytes += (field == nullptr ? kBytesPerUnknown : kBytesPerString) + size + size / 64;
  }
  return true;
}

size_t BytesOf(const Descriptor& type, CodedInputStream& in, int depth) {
  size_t bytes = kBytesPerMessage;
  while (const uint32_t tag = in.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
    uint64_t number = 0;
    uint32_t small = 0;
    bool read = true;
    switch (tag & 7) {
      case kVarint:
        read = in.ReadVarint64(&number);
        break;
      case kFixed64:
        read = in.ReadLittleEndian64(&number);
        break;
      case kFixed32:
        read = in.ReadLittleEndian32(&small);
        break;
      case kBytes:
        if (!AddBytes(field, in, depth, bytes)) return bytes;
        continue;
      default:  // groups: no message here has any; their fields are read as unknown ones
        break;
    }
    if (!read) return bytes;
    bytes += field == nullptr || (tag & 7) == kGroup ? kBytesPerUnknown : kBytesPerNumber;
  }
  return bytes;
}

}  // namespace

size_t ParsedBytes(const Descriptor& type, std::string_view bytes) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  return BytesOf(type, in, 0);
}

}  // namespace quire
