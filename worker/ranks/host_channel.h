// The channel between the engine and one rank, over one piece of shared memory: packets out,
// results back.
//
// Each side is owned by one thread that sends and receives; Close may come from any. Invariants:
// 1. A ring is bounded: a writer that is faster than its reader waits. A message may be longer than
//    the ring.
// 2. Messages arrive whole and in order, or the channel reports why not: impossible positions, a
//    wrong mark, length or checksum are damage. Nothing that is read from the memory is used
//    unchecked.
// 3. A wait spins at most kCommunicatorSpinMicros, then sleeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "kernels/collectives/shared_memory.h"

namespace quire {

inline constexpr size_t kRingBytes = 256 * 1024;  // of each direction, a power of two
inline constexpr size_t kMaxMessageBytes = 256 * 1024 * 1024;

enum class ChannelState : uint8_t { kOk, kDeadline, kClosed, kDamaged };

// One direction, as one of its two ends sees it.
class SharedRing {
 public:
  struct Header;

  // `memory` has BytesNeeded() and is zeros when the first end is made.
  explicit SharedRing(std::span<std::byte> memory);
  static size_t BytesNeeded();

  ChannelState Write(std::span<const std::byte> bytes, int64_t until_us);
  ChannelState Read(std::span<std::byte> bytes, int64_t until_us);
  // Until there is something to read.
  ChannelState WaitReadable(int64_t until_us);
  // Both ends wake up and stay closed.
  void Close();

 private:
  ChannelState WaitForRoom(size_t& room, int64_t until_us);
  ChannelState WaitForBytes(size_t& bytes, int64_t until_us);

  Header& header_;
  std::span<std::byte> data_;
  uint64_t position_ = 0;  // bytes that this end has written, or read
};

struct ChannelMessage {
  uint32_t kind = 0;
  std::vector<std::byte> bytes;  // its memory is reused

  // `bytes` as a line of text, without the characters that cannot be printed.
  std::string Text() const;
};

class HostChannel {
 public:
  // The engine's side.
  static absl::StatusOr<std::unique_ptr<HostChannel>> Create();
  // The rank's end, over a descriptor of the same memory, which it takes over.
  static absl::StatusOr<std::unique_ptr<HostChannel>> Open(int fd);

  // A message of two parts that follow each other. Times are FutexNowMicros.
  ChannelState Send(uint32_t kind, std::span<const std::byte> head, std::span<const std::byte> body,
                    int64_t until_us);
  ChannelState Receive(ChannelMessage& message, int64_t until_us);
  ChannelState WaitForMessage(int64_t until_us) { return in_.WaitReadable(until_us); }
  // Any thread.
  void Close();

  int fd() const { return memory_->fd(); }

 private:
  HostChannel(std::unique_ptr<kernels::SharedMemory> memory, bool engine_side);

  std::unique_ptr<kernels::SharedMemory> memory_;
  SharedRing in_;
  SharedRing out_;
};

}  // namespace quire
