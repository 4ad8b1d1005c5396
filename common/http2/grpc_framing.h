// gRPC over HTTP/2, without HTTP/2: the messages in a stream's body, deadlines, statuses and their
// form on the wire (gRPC's PROTOCOL-HTTP2 document).
//
// Pure; any thread, a MessageReader one at a time. Statuses are Abseil's, whose codes are gRPC's.
//  1. Any split of a stream's bytes gives the same messages.
//  2. No memory is allocated for a message that exceeds the limit, compressed or not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/http2/session.h"
#include "common/memory_account.h"
#include "common/status.h"

namespace quire::http2 {

// ---- messages
inline constexpr size_t kMessagePrefixBytes = 5;  // a flag and the length

// The prefix of a message that is not compressed; `at` has room for it. Below 2^32 bytes.
void PutMessagePrefix(char* at, size_t message_bytes);
void AppendMessage(std::string& out, std::string_view message);

enum class Encoding : uint8_t { kIdentity, kGzip, kDeflate };
inline constexpr std::string_view kAcceptedEncodings = "identity,deflate,gzip";
// The encoding of a grpc-encoding header; nullopt: it is not supported here (UNIMPLEMENTED).
std::optional<Encoding> EncodingOf(std::string_view name);

struct UnpackLimits {
  size_t most = 0;                               // bytes of the message
  const std::atomic<bool>* cancelled = nullptr;  // checked after every kUnpackStepBytes
  MemoryHold* hold = nullptr;  // grows by the message's memory before that is allocated
};
inline constexpr size_t kUnpackStepBytes = 256u << 10;  // read or made

// A compressed message as it was. RESOURCE_EXHAUSTED: it is larger. INTERNAL: broken compression.
// CANCELLED: `cancelled` was set. UNAVAILABLE: the hold has no room. Takes milliseconds for each
// few MiB: do not call it on an event loop.
absl::StatusOr<std::string> Unpack(Encoding encoding, std::string_view packed,
                                   const UnpackLimits& limits);

// Reads messages from the body of one side of one stream.
//
//   while (reader.Next(bytes, message)) Use(message);
//   if (!reader.status().ok()) ...
class MessageReader {
 public:
  // `most`: the largest size of a message on the wire. `encoding`: the compression of messages that
  // have it.
  explicit MessageReader(size_t most, Encoding encoding = Encoding::kIdentity);

  // True: a message, whose view is valid until the next call and as long as the memory of `bytes`;
  // its bytes are removed from the front. False: `bytes` is empty and the next message incomplete,
  // or status() is an error, which is final.
  bool Next(std::string_view& bytes, std::string_view& message);
  // The message of the last Next by itself, without a copy where it is held here.
  std::string Take(std::string_view message);
  // The compression of the last Next's message, for Unpack.
  Encoding packing() const { return packed_ ? encoding_ : Encoding::kIdentity; }
  // RESOURCE_EXHAUSTED: too large. INTERNAL: a broken prefix.
  const absl::Status& status() const { return status_; }
  // Some bytes of a message have come, and the rest has not: a stream must not end here (INTERNAL).
  bool in_message() const { return filled_ > 0 || in_body_; }
  // Bytes of the current message that are held.
  size_t held() const { return body_.size(); }

 private:
  bool TakePrefix(std::string_view& bytes);
  bool Fail(absl::Status status);

  size_t most_;
  Encoding encoding_;
  absl::Status status_;
  char prefix_[kMessagePrefixBytes] = {};
  uint32_t filled_ = 0;    // bytes of the prefix
  bool in_body_ = false;   // the prefix is whole
  bool packed_ = false;    // the current message is compressed
  size_t body_bytes_ = 0;  // of the current message
  std::string body_;       // what has arrived of a message that comes in parts
};

// ---- deadlines
// Microseconds of a grpc-timeout header ("100m"), rounded up; nullopt: malformed.
std::optional<int64_t> ParseTimeout(std::string_view text);
// At least a microsecond; at most eight digits, rounded up to the smallest unit that fits.
std::string PrintTimeout(int64_t micros);

// ---- binary metadata: values of names that end in "-bin"
inline bool IsBinary(std::string_view name) { return name.ends_with("-bin"); }
std::string ToBinaryHeader(std::string_view bytes);  // base64 without padding
// With padding or without; nullopt: not base64.
std::optional<std::string> FromBinaryHeader(std::string_view text);

// ---- statuses
// A code that is not one of gRPC's becomes UNKNOWN.
absl::StatusCode ParseStatusCode(std::string_view text);
// At most `most` bytes, cut at a character.
std::string PercentEncode(std::string_view message, size_t most = SIZE_MAX);

// The payload of a status that holds a google.rpc.Status: the content of grpc-status-details-bin.
inline constexpr std::string_view kStatusDetails = "type.googleapis.com/google.rpc.Status";
inline constexpr std::string_view kStatusDetailsHeader = "grpc-status-details-bin";

// The status in the trailers of a response: grpc-status and grpc-message. `http_status` of its
// headers counts where there is no grpc-status; 0: none came.
absl::Status StatusOfTrailers(Headers trailers, int http_status);
absl::StatusCode CodeOfHttpStatus(int http_status);
// The status of a response whose stream was reset before its trailers.
absl::StatusCode CodeOfReset(ErrorCode code);
const char* NameOf(ErrorCode code);  // "REFUSED_STREAM"; "?" for an unknown one

}  // namespace quire::http2
