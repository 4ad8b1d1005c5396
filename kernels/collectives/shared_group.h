// The memory in which CPU ranks meet, as threads of one process or as separate processes, and their
// communicators over it.
//
// Owned by the code that starts the ranks and by each process of them; it outlives its
// communicators. Invariants:
// 1. Threads and processes run the same code over the same layout, so their bits are equal.
// 2. Nothing that is read from the memory is used as a size, an index or an address: a rank that
//    writes nonsense gives wrong sums or a failure, never a crash of its peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/collectives/shared_memory.h"
#include "kernels/communicator.h"

namespace quire::kernels {

// What one rank passes at once; longer values go in parts of it, or in place.
inline constexpr size_t kSlotBytes = 128 * 1024;
inline constexpr size_t kMaxArenaBytes = size_t{1} << 40;  // of each rank

struct SharedGroupOptions {
  int size = 1;            // ranks, at most kMaxRanks
  size_t arena_bytes = 0;  // for each rank's Communicator::Allocate
};

class SharedGroup {
 public:
  // Null with `error`.
  static std::unique_ptr<SharedGroup> Create(const SharedGroupOptions& options, std::string& error);
  // The group that another process made with equal options; takes the descriptor. Null with
  // `error`.
  static std::unique_ptr<SharedGroup> Open(const SharedGroupOptions& options, int fd,
                                           std::string& error);
  ~SharedGroup();

  // The communicator of one rank; once for each in all processes together.
  std::unique_ptr<Communicator> Join(int rank);

  // Like Communicator::Abort, for a caller that is not a rank. Any thread.
  void Abort();
  bool aborted() const;

  int size() const { return options_.size; }
  int fd() const { return memory_->fd(); }
  static size_t BytesNeeded(const SharedGroupOptions& options);

 private:
  friend class SharedCommunicator;
  struct Header;
  struct RankState;

  SharedGroup(const SharedGroupOptions& options, std::unique_ptr<SharedMemory> memory);
  Header& header() const;
  RankState& rank(int rank) const;
  std::byte* Slot(int parity, int rank) const;
  std::byte* Arena(int rank) const;
  size_t arena_bytes() const;

  const SharedGroupOptions options_;
  const std::unique_ptr<SharedMemory> memory_;
};

}  // namespace quire::kernels
