#include "common/trace/otlp.h"

#include <bit>
#include <cstring>
#include <type_traits>

namespace quire::trace {
namespace {

constexpr char kScopeName[] = "quire";

// Protobuf's wire format: a message under construction.
class Message {
 public:
  void Varint(uint32_t field, uint64_t value) {
    Key(field, 0);
    Raw(value);
  }
  void Fixed64(uint32_t field, uint64_t value) {
    Key(field, 1);
    Little(value, 8);
  }
  void Fixed32(uint32_t field, uint32_t value) {
    Key(field, 5);
    Little(value, 4);
  }
  void Bytes(uint32_t field, std::string_view bytes) {
    Key(field, 2);
    Raw(bytes.size());
    out_ += bytes;
  }
  void Put(uint32_t field, const Message& message) { Bytes(field, message.out_); }
  std::string Take() { return std::move(out_); }

 private:
  void Key(uint32_t field, uint32_t type) { Raw(field << 3 | type); }
  void Raw(uint64_t value) {
    while (value >= 0x80) {
      out_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    out_ += static_cast<char>(value);
  }
  void Little(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
  }

  std::string out_;
};

// Ids go over the wire with their highest byte first.
std::string BigEndian(uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

Message AnyValue(const AttributeValue& value) {
  Message any;
  std::visit(
      [&any](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>) {
          any.Bytes(1, held);
        } else if constexpr (std::is_same_v<Held, bool>) {
          any.Varint(2, held ? 1 : 0);
        } else if constexpr (std::is_same_v<Held, int64_t>) {
          any.Varint(3, static_cast<uint64_t>(held));
        } else if constexpr (std::is_same_v<Held, double>) {
          any.Fixed64(4, std::bit_cast<uint64_t>(held));
        } else {
          Message array;
          for (const std::string& text : held) {
            Message item;
            item.Bytes(1, text);
            array.Put(1, item);
          }
          any.Put(5, array);
        }
      },
      value);
  return any;
}

void PutAttributes(uint32_t field, const Attributes& attributes, Message& to) {
  for (const auto& [key, value] : attributes) {
    Message pair;
    pair.Bytes(1, key);
    pair.Put(2, AnyValue(value));
    to.Put(field, pair);
  }
}

Message EncodeSpan(const Span& span) {
  constexpr uint32_t kStatusError = 2;
  constexpr uint32_t kSampledFlag = 1;
  Message message;
  message.Bytes(1, BigEndian(span.trace.high) + BigEndian(span.trace.low));
  message.Bytes(2, BigEndian(span.id));
  if (!span.state.empty()) message.Bytes(3, span.state);
  if (span.parent != 0) message.Bytes(4, BigEndian(span.parent));
  message.Bytes(5, span.name);
  message.Varint(6, static_cast<uint64_t>(span.kind));
  message.Fixed64(7, static_cast<uint64_t>(span.start_unix_ns));
  message.Fixed64(8, static_cast<uint64_t>(span.end_unix_ns));
  PutAttributes(9, span.attributes, message);
  for (const SpanEvent& event : span.events) {
    Message encoded;
    encoded.Fixed64(1, static_cast<uint64_t>(event.unix_ns));
    encoded.Bytes(2, event.name);
    PutAttributes(3, event.attributes, encoded);
    message.Put(11, encoded);
  }
  for (const SpanLink& link : span.links) {
    Message encoded;
    encoded.Bytes(1, BigEndian(link.trace.high) + BigEndian(link.trace.low));
    encoded.Bytes(2, BigEndian(link.span));
    PutAttributes(4, link.attributes, encoded);
    message.Put(13, encoded);
  }
  if (!span.error.empty()) {
    Message status;
    status.Bytes(2, span.error);
    status.Varint(3, kStatusError);
    message.Put(15, status);
  }
  message.Fixed32(16, kSampledFlag);
  return message;
}

}  // namespace

std::string EncodeOtlp(const Attributes& resource, std::span<const Span> spans) {
  Message resource_message;
  PutAttributes(1, resource, resource_message);
  Message scope;
  scope.Bytes(1, kScopeName);
  scope.Bytes(2, QUIRE_VERSION);
  Message scope_spans;
  scope_spans.Put(1, scope);
  for (const Span& span : spans) scope_spans.Put(2, EncodeSpan(span));
  Message resource_spans;
  resource_spans.Put(1, resource_message);
  resource_spans.Put(2, scope_spans);
  Message request;
  request.Put(1, resource_spans);
  return request.Take();
}

}  // namespace quire::trace
