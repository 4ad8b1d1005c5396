// gRPC over HTTP/2, without HTTP/2: the messages in a stream's body, deadlines, statuses and what
// they become on the wire (gRPC's PROTOCOL-HTTP2 document).
//
// Pure; any thread, a MessageReader one at a time. Statuses are Abseil's, whose codes are gRPC's.
//  1. Any split of a stream's bytes gives the same messages.
//  2. No message that is larger than the limit is given memory, packed or unpacked.
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
// Of a grpc-encoding header; nullopt: one that is not spoken here (UNIMPLEMENTED).
std::optional<Encoding> EncodingOf(std::string_view name);

struct UnpackLimits {
  size_t most = 0;                               // bytes of the message
  const std::atomic<bool>* cancelled = nullptr;  // looked at after every kUnpackStepBytes
  MemoryHold* hold = nullptr;  // grows by the message's memory, before that is taken
};
inline constexpr size_t kUnpackStepBytes = 256u << 10;  // read or made

// A compressed message as it was. RESOURCE_EXHAUSTED: it is larger. INTERNAL: broken compression.
// CANCELLED: `cancelled` was set. UNAVAILABLE: the hold has no room. Takes milliseconds for each
// few MiB: not for an event loop.
absl::StatusOr<std::string> Unpack(Encoding encoding, std::string_view packed,
                                   const UnpackLimits& limits);

// Messages out of the body of one side of one stream.
//
//   while (reader.Next(bytes, message)) Use(message);
//   if (!reader.status().ok()) ...
class MessageReader {
 public:
  // `most`: bytes of a message as it comes. `encoding`: of those that are compressed.
  explicit MessageReader(size_t most, Encoding encoding = Encoding::kIdentity);

  // True: a message, whose view holds until the next call and as long as `bytes`' memory does; what
  // it took is gone off the front. False: `bytes` is empty and the next message not whole, or
  // status() is an error, which is final.
  bool Next(std::string_view& bytes, std::string_view& message);
  // The message of the last Next by itself, without a copy where it is held here.
  std::string Take(std::string_view message);
  // How the message of the last Next is compressed, for Unpack.
  Encoding packing() const { return packed_ ? encoding_ : Encoding::kIdentity; }
  // RESOURCE_EXHAUSTED: too large. INTERNAL: a broken prefix.
  const absl::Status& status() const { return status_; }
  // Bytes of a message have come whose rest has not: a stream must not end here (INTERNAL).
  bool in_message() const { return filled_ > 0 || in_body_; }
  // Bytes of the message at hand that are held.
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
  bool packed_ = false;    // the message at hand is compressed
  size_t body_bytes_ = 0;  // of the message at hand
  std::string body_;       // what has come of a message that comes in parts
};

// ---- deadlines
// Microseconds of a grpc-timeout header ("100m"), rounded up; nullopt: not of its form.
std::optional<int64_t> ParseTimeout(std::string_view text);
// At least a microsecond; at most eight digits, rounded up to the unit that has room.
std::string PrintTimeout(int64_t micros);

// ---- binary metadata: what goes by a name that ends in "-bin"
inline bool IsBinary(std::string_view name) { return name.ends_with("-bin"); }
std::string ToBinaryHeader(std::string_view bytes);  // base64 without padding
// With padding or without; nullopt: no base64.
std::optional<std::string> FromBinaryHeader(std::string_view text);

// ---- statuses
// What is no code of gRPC's is UNKNOWN.
absl::StatusCode ParseStatusCode(std::string_view text);
// At most `most` bytes, cut at a character.
std::string PercentEncode(std::string_view message, size_t most = SIZE_MAX);

// The payload of a status that holds a google.rpc.Status: that of grpc-status-details-bin.
inline constexpr std::string_view kStatusDetails = "type.googleapis.com/google.rpc.Status";
inline constexpr std::string_view kStatusDetailsHeader = "grpc-status-details-bin";

// Of the trailers of a response: grpc-status and grpc-message. `http_status` of its headers, which
// counts where there is no grpc-status; 0: none came.
absl::Status StatusOfTrailers(Headers trailers, int http_status);
absl::StatusCode CodeOfHttpStatus(int http_status);
// Of a response whose stream was reset before its trailers.
absl::StatusCode CodeOfReset(ErrorCode code);
const char* NameOf(ErrorCode code);  // "REFUSED_STREAM"; "?" for none of ours

}  // namespace quire::http2
