#include "worker/ranks/host_channel.h"

#define XXH_STATIC_LINKING_ONLY  // a state on the stack
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "common/check.h"
#include "kernels/collectives/futex.h"
#include "kernels/communicator.h"

namespace quire {
namespace {

using kernels::FutexNowMicros;

static_assert((kRingBytes & (kRingBytes - 1)) == 0);

constexpr uint32_t kMark = 0x474D5151;  // "QQMG"

struct MessageHead {
  uint32_t mark = kMark;
  uint32_t kind = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(MessageHead) == 24);

// A sleeper and those who wake it: see SharedCommunicator::Wait for why no wake-up is lost.
struct Bell {
  std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> rung;

  void Ring() {
    if (sleeping.load() == 0) return;
    rung.fetch_add(1);
    kernels::FutexWakeAll(rung);
  }
};

// Waits until `ready()` has a state and returns it, or kDeadline when the time is over.
template <class Ready>
ChannelState WaitAt(Bell& bell, int64_t until_us, const Ready& ready) {
  const int64_t spin_until = FutexNowMicros() + kernels::kCommunicatorSpinMicros;
  do {
    for (int i = 0; i < 16; ++i) {
      if (const std::optional<ChannelState> state = ready()) return *state;
      kernels::SpinPause();
    }
  } while (FutexNowMicros() < spin_until);
  bell.sleeping.store(1);
  while (true) {
    const uint32_t seen = bell.rung.load();
    const std::optional<ChannelState> state = ready();
    const int64_t left = until_us - FutexNowMicros();
    if (state.has_value() || left <= 0) {
      bell.sleeping.store(0);
      return state.value_or(ChannelState::kDeadline);
    }
    kernels::FutexWait(bell.rung, seen, std::min<int64_t>(left, 3'600'000'000));
  }
}

// Over all the bytes, wherever the first part ends.
uint64_t Checksum(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (head.empty()) return XXH3_64bits(body.data(), body.size());
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, head.data(), head.size());
  XXH3_64bits_update(&state, body.data(), body.size());
  return XXH3_64bits_digest(&state);
}

}  // namespace

struct SharedRing::Header {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) Bell reader;
  alignas(64) Bell writer;
  alignas(64) std::atomic<uint32_t> closed;
};

size_t SharedRing::BytesNeeded() { return sizeof(Header) + kRingBytes; }

SharedRing::SharedRing(std::span<std::byte> memory)
    : header_(*reinterpret_cast<Header*>(memory.data())),
      data_(memory.subspan(sizeof(Header), kRingBytes)) {}

void SharedRing::Close() {
  header_.closed.store(1);
  for (Bell* bell : {&header_.reader, &header_.writer}) {
    bell->rung.fetch_add(1);
    kernels::FutexWakeAll(bell->rung);
  }
}

// The position that the other end reports is believed only within its possible range.
ChannelState SharedRing::WaitForRoom(size_t& room, int64_t until_us) {
  return WaitAt(header_.writer, until_us, [this, &room]() -> std::optional<ChannelState> {
    if (header_.closed.load() != 0) return ChannelState::kClosed;
    const uint64_t unread = position_ - header_.read.load();
    if (unread > kRingBytes) return ChannelState::kDamaged;
    room = kRingBytes - unread;
    if (room > 0) return ChannelState::kOk;
    return std::nullopt;
  });
}

ChannelState SharedRing::WaitForBytes(size_t& bytes, int64_t until_us) {
  return WaitAt(header_.reader, until_us, [this, &bytes]() -> std::optional<ChannelState> {
    bytes = header_.written.load() - position_;
    if (bytes > kRingBytes) return ChannelState::kDamaged;
    if (bytes > 0)
      return ChannelState::kOk;  // also after the channel is closed: the last messages are read
    if (header_.closed.load() != 0) return ChannelState::kClosed;
    return std::nullopt;
  });
}

ChannelState SharedRing::Write(std::span<const std::byte> bytes, int64_t until_us) {
  while (!bytes.empty()) {
    size_t room = 0;
    const ChannelState state = WaitForRoom(room, until_us);
    if (state != ChannelState::kOk) return state;
    const size_t at = position_ % kRingBytes;
    const size_t count = std::min({bytes.size(), room, kRingBytes - at});
    std::memcpy(data_.data() + at, bytes.data(), count);
    position_ += count;
    header_.written.store(position_);
    header_.reader.Ring();
    bytes = bytes.subspan(count);
  }
  return ChannelState::kOk;
}

ChannelState SharedRing::Read(std::span<std::byte> bytes, int64_t until_us) {
  while (!bytes.empty()) {
    size_t there = 0;
    const ChannelState state = WaitForBytes(there, until_us);
    if (state != ChannelState::kOk) return state;
    const size_t at = position_ % kRingBytes;
    const size_t count = std::min({bytes.size(), there, kRingBytes - at});
    std::memcpy(bytes.data(), data_.data() + at, count);
    position_ += count;
    header_.read.store(position_);
    header_.writer.Ring();
    bytes = bytes.subspan(count);
  }
  return ChannelState::kOk;
}

ChannelState SharedRing::WaitReadable(int64_t until_us) {
  size_t there = 0;
  return WaitForBytes(there, until_us);
}

std::string ChannelMessage::Text() const {
  std::string text;
  for (const std::byte byte : bytes) {
    const char c = static_cast<char>(byte);
    text += c >= ' ' && c != 0x7F ? c : '?';
  }
  return text;
}

HostChannel::HostChannel(std::unique_ptr<kernels::SharedMemory> memory, bool engine_side)
    : memory_(std::move(memory)),
      in_(memory_->bytes().subspan(engine_side ? SharedRing::BytesNeeded() : 0,
                                   SharedRing::BytesNeeded())),
      out_(memory_->bytes().subspan(engine_side ? 0 : SharedRing::BytesNeeded(),
                                    SharedRing::BytesNeeded())) {}

absl::StatusOr<std::unique_ptr<HostChannel>> HostChannel::Create() {
  std::string error;
  auto memory =
      kernels::SharedMemory::Create("quire-channel", 2 * SharedRing::BytesNeeded(), error);
  if (memory == nullptr) return absl::ResourceExhaustedError(AbslView(error));
  return std::unique_ptr<HostChannel>(new HostChannel(std::move(memory), true));
}

absl::StatusOr<std::unique_ptr<HostChannel>> HostChannel::Open(int fd) {
  std::string error;
  auto memory = kernels::SharedMemory::Open(fd, 2 * SharedRing::BytesNeeded(), error);
  if (memory == nullptr) return absl::InternalError(AbslView(error));
  return std::unique_ptr<HostChannel>(new HostChannel(std::move(memory), false));
}

ChannelState HostChannel::Send(uint32_t kind, std::span<const std::byte> head,
                               std::span<const std::byte> body, int64_t until_us) {
  const uint64_t bytes = head.size() + body.size();
  QUIRE_CHECK_MSG(bytes <= kMaxMessageBytes, "a message between the engine and a rank is too long");
  const MessageHead first{kMark, kind, bytes, Checksum(head, body)};
  for (const auto part : {std::as_bytes(std::span(&first, 1)), head, body}) {
    const ChannelState state = out_.Write(part, until_us);
    if (state != ChannelState::kOk) return state;
  }
  return ChannelState::kOk;
}

ChannelState HostChannel::Receive(ChannelMessage& message, int64_t until_us) {
  MessageHead head;
  ChannelState state = in_.Read(std::as_writable_bytes(std::span(&head, 1)), until_us);
  if (state != ChannelState::kOk) return state;
  if (head.mark != kMark || head.bytes > kMaxMessageBytes) return ChannelState::kDamaged;
  message.kind = head.kind;
  message.bytes.clear();
  // A false length costs no memory: the buffer grows with the received bytes.
  while (message.bytes.size() < head.bytes) {
    const size_t at = message.bytes.size();
    const size_t count = std::min<size_t>(head.bytes - at, kRingBytes);
    message.bytes.resize(at + count);
    state = in_.Read(std::span(message.bytes).subspan(at), until_us);
    if (state != ChannelState::kOk) return state;
  }
  return Checksum({}, message.bytes) == head.checksum ? ChannelState::kOk : ChannelState::kDamaged;
}

void HostChannel::Close() {
  in_.Close();
  out_.Close();
}

}  // namespace quire
