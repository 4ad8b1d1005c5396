#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/http2/grpc_framing.h"
#include "common/release.h"

namespace quire::http2 {
namespace {

constexpr int kZlibWindowBits = 15;
constexpr int kGzipWindowBits = 15 + 16;
constexpr size_t kFirstBytes = 4096;
constexpr size_t kKeptBytes = 256u << 10;  // of a message that has been read

struct Inflater {
  explicit Inflater(Encoding encoding) {
    const int bits = encoding == Encoding::kGzip ? kGzipWindowBits : kZlibWindowBits;
    QUIRE_CHECK_MSG(inflateInit2(&stream, bits) == Z_OK, "memory for zlib");
  }
  ~Inflater() { inflateEnd(&stream); }
  z_stream stream{};
};

// With the texts of gRPC's own libraries.
absl::Status TooLarge(const std::string& bytes, size_t most) {
  return absl::ResourceExhaustedError(AbslView("Received message larger than max (" + bytes +
                                               " vs. " + std::to_string(most) + ")"));
}

// Charges for a larger buffer, together with the one that it replaces, before it is allocated.
bool Grow(size_t bytes, size_t held, const UnpackLimits& limits, std::string& message) {
  MemoryHold* hold = limits.hold;
  if (hold != nullptr && !hold->TryResize(held + message.size() + bytes)) return false;
  message.resize(bytes);
  if (hold != nullptr) hold->Resize(held + bytes);
  return true;
}

}  // namespace

MessageReader::MessageReader(size_t most, Encoding encoding) : most_(most), encoding_(encoding) {}

bool MessageReader::Fail(absl::Status status) {
  status_ = std::move(status);
  Release(body_);
  return false;
}

std::string MessageReader::Take(std::string_view message) {
  if (message.empty() || message.data() != body_.data()) return std::string(message);
  return std::exchange(body_, {});
}

bool MessageReader::TakePrefix(std::string_view& bytes) {
  const size_t taken = std::min(kMessagePrefixBytes - filled_, bytes.size());
  std::memcpy(prefix_ + filled_, bytes.data(), taken);
  filled_ += static_cast<uint32_t>(taken);
  bytes.remove_prefix(taken);
  if (filled_ < kMessagePrefixBytes) return false;
  filled_ = 0;
  body_bytes_ = 0;
  for (int i = 1; i <= 4; ++i) body_bytes_ = body_bytes_ << 8 | static_cast<uint8_t>(prefix_[i]);
  packed_ = prefix_[0] == 1;
  if (!packed_ && prefix_[0] != 0) {
    return Fail(absl::InternalError("a message begins with a flag that gRPC does not have"));
  }
  if (packed_ && encoding_ == Encoding::kIdentity) {
    return Fail(absl::InternalError("a message is compressed, and no grpc-encoding says how"));
  }
  if (body_bytes_ > most_) return Fail(TooLarge(std::to_string(body_bytes_), most_));
  in_body_ = true;
  return true;
}

bool MessageReader::Next(std::string_view& bytes, std::string_view& message) {
  if (!status_.ok()) return false;
  if (!in_body_) {
    body_.clear();  // the last message has been processed
    if (body_.capacity() > kKeptBytes) body_.shrink_to_fit();
    if (!TakePrefix(bytes)) return false;
  }
  if (body_.empty() && bytes.size() >= body_bytes_) {
    message = bytes.substr(0, body_bytes_);
    bytes.remove_prefix(body_bytes_);
  } else {
    const size_t taken = std::min(body_bytes_ - body_.size(), bytes.size());
    body_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (body_.size() < body_bytes_) return false;
    message = body_;
  }
  in_body_ = false;
  return true;
}

absl::StatusOr<std::string> Unpack(Encoding encoding, std::string_view packed,
                                   const UnpackLimits& limits) {
  if (packed.empty() || encoding == Encoding::kIdentity) return std::string(packed);
  Inflater inflater(encoding);
  z_stream& stream = inflater.stream;
  const size_t held = limits.hold == nullptr ? 0 : limits.hold->bytes();
  std::string message;
  size_t size = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    if (size > limits.most) return TooLarge("more", limits.most);
    if (limits.cancelled != nullptr && limits.cancelled->load(std::memory_order_relaxed)) {
      return absl::CancelledError("the client does not wait for its message");
    }
    // One byte more than the limit separates a message that is too large from one that just fits.
    if (size == message.size() &&
        !Grow(std::min(limits.most + 1, std::max(kFirstBytes, 2 * size)), held, limits, message)) {
      return absl::UnavailableError(AbslView(kTooManyLargeRequests));
    }
    const std::string_view in = packed.substr(0, kUnpackStepBytes);
    const size_t room = std::min(message.size() - size, kUnpackStepBytes);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream.avail_in = static_cast<uInt>(in.size());
    stream.next_out = reinterpret_cast<Bytef*>(message.data() + size);
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    packed.remove_prefix(in.size() - stream.avail_in);
    size += room - stream.avail_out;
  }
  if (size > limits.most) return TooLarge("more", limits.most);
  if (result != Z_STREAM_END || !packed.empty()) {
    return absl::InternalError("a message is not compressed as its grpc-encoding says");
  }
  message.resize(size);
  return message;
}

}  // namespace quire::http2
