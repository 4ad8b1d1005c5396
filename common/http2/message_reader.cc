#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/http2/grpc_framing.h"

namespace quire::http2 {
namespace {

constexpr int kZlibWindowBits = 15;
constexpr int kGzipWindowBits = 15 + 16;
constexpr size_t kFirstBytes = 4096;
constexpr size_t kKeptBytes = 256u << 10;  // of a message that has been read

}  // namespace

struct MessageReader::Unpacker {
  explicit Unpacker(Encoding encoding) {
    const int bits = encoding == Encoding::kGzip ? kGzipWindowBits : kZlibWindowBits;
    QUIRE_CHECK_MSG(inflateInit2(&stream, bits) == Z_OK, "memory for zlib");
  }
  ~Unpacker() { inflateEnd(&stream); }
  z_stream stream{};
};

MessageReader::MessageReader(size_t most, Encoding encoding) : most_(most), encoding_(encoding) {}
MessageReader::~MessageReader() = default;
MessageReader::MessageReader(MessageReader&&) noexcept = default;
MessageReader& MessageReader::operator=(MessageReader&&) noexcept = default;

bool MessageReader::Fail(absl::Status status) {
  status_ = std::move(status);
  body_ = {};
  unpacked_ = {};
  return false;
}

// In the words of gRPC's own libraries.
bool MessageReader::TooLarge(const std::string& bytes) {
  return Fail(absl::ResourceExhaustedError(AbslView("Received message larger than max (" + bytes +
                                                    " vs. " + std::to_string(most_) + ")")));
}

std::string MessageReader::Take(std::string_view message) {
  for (std::string* held : {&body_, &unpacked_}) {
    if (message.empty() || message.data() != held->data()) continue;
    held->resize(message.size());
    return std::exchange(*held, {});
  }
  return std::string(message);
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
  if (body_bytes_ > most_) return TooLarge(std::to_string(body_bytes_));
  in_body_ = true;
  return true;
}

bool MessageReader::Next(std::string_view& bytes, std::string_view& message) {
  if (!status_.ok()) return false;
  if (!in_body_) {
    body_.clear();  // the last message has been dealt with
    if (body_.capacity() > kKeptBytes) body_.shrink_to_fit();
    if (unpacked_.capacity() > kKeptBytes) unpacked_ = {};
    if (!TakePrefix(bytes)) return false;
  }
  std::string_view whole;
  if (body_.empty() && bytes.size() >= body_bytes_) {
    whole = bytes.substr(0, body_bytes_);
    bytes.remove_prefix(body_bytes_);
  } else {
    const size_t taken = std::min(body_bytes_ - body_.size(), bytes.size());
    body_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (body_.size() < body_bytes_) return false;
    whole = body_;
  }
  in_body_ = false;
  if (packed_) return Unpack(whole, message);
  message = whole;
  return true;
}

bool MessageReader::Unpack(std::string_view packed, std::string_view& message) {
  if (packed.empty()) {
    message = packed;
    return true;
  }
  if (unpacker_ == nullptr) unpacker_ = std::make_unique<Unpacker>(encoding_);
  z_stream& stream = unpacker_->stream;
  inflateReset(&stream);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  size_t size = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    if (size > most_) return TooLarge("more");
    // One byte more than the limit tells a message that is too large from one that just fits.
    if (size == unpacked_.size()) {
      unpacked_.resize(std::min(most_ + 1, std::max(kFirstBytes, 2 * size)));
    }
    stream.next_out = reinterpret_cast<Bytef*>(unpacked_.data() + size);
    stream.avail_out = static_cast<uInt>(unpacked_.size() - size);
    result = inflate(&stream, Z_NO_FLUSH);
    size = unpacked_.size() - stream.avail_out;
  }
  if (size > most_) return TooLarge("more");
  if (result != Z_STREAM_END || stream.avail_in != 0) {
    return Fail(absl::InternalError("a message is not compressed as its grpc-encoding says"));
  }
  message = std::string_view(unpacked_).substr(0, size);
  return true;
}

}  // namespace quire::http2
