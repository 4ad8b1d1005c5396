// Adapters in memory that the engine's process shares with its ranks: the matrices as their file
// has them, cut for each rank. A rank packs them on a thread of its own, and once more after a
// restart.
//
// Made by the engine's side; every rank opens it by its descriptor. An entry has a number, another
// one for each content; 0: it is free. Put comes from one thread at a time, Free, Close and what
// ranks call from any. Invariants:
// 1. What a rank has read of an entry counts only if the entry still has the number of before.
// 2. Nothing that is read is used unchecked: another process writes it.
// 3. The memory of a free entry is given back to the system.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/status.h"
#include "common/sync.h"
#include "kernels/collectives/shared_memory.h"
#include "kernels/lora_ops.h"

namespace quire {

inline constexpr int kMaxArenaEntries = 4100;  // the most slots of adapters, and a few in flight
inline constexpr int kMaxArenaRanks = 64;

struct AdapterArenaShape {
  int32_t entries = 0;
  int32_t ranks = 0;
  int64_t rank_bytes = 0;  // of an entry, for one rank: AdapterArena::PieceBytes
};

// A content of an entry.
struct ArenaPlace {
  int32_t entry = 0;
  uint64_t number = 0;
};

class AdapterArena {
 public:
  // Bytes of one rank's piece of any adapter for these targets.
  static int64_t PieceBytes(const std::vector<kernels::LoraTarget>& targets, int max_rank);

  static absl::StatusOr<std::shared_ptr<AdapterArena>> Create(const AdapterArenaShape& shape);
  // The rank's side, over a descriptor of the same memory, which it takes over.
  static absl::StatusOr<std::unique_ptr<AdapterArena>> Open(int fd);

  const AdapterArenaShape& shape() const { return shape_; }
  int fd() const { return memory_->fd(); }

  // --- the engine's side
  // Writes an adapter, by rank, and waits until all ranks have packed it. UNAVAILABLE: no entry is
  // free, a rank has not packed it in time, or the arena is closed.
  absl::StatusOr<ArenaPlace> Put(std::span<const kernels::Adapter> by_rank, int64_t wait_micros);
  void Free(const ArenaPlace& place);
  // Puts end at once, also those of later.
  void Close();
  int64_t BytesOf(const ArenaPlace& place) const;  // of all ranks together

  // --- a rank's side
  uint64_t NumberOf(int entry) const;
  // The matrices of a rank's targets; they are in the arena. INTERNAL: they are damaged, or being
  // replaced.
  absl::StatusOr<kernels::Adapter> Read(int entry, int rank,
                                        const std::vector<kernels::LoraTarget>& targets,
                                        int max_rank) const;
  void SetPacked(const ArenaPlace& place, int rank);
  // A count of changes; returns when it is no longer `seen`, or after the time.
  uint32_t Changes() const;
  void AwaitChange(uint32_t seen, int64_t timeout_micros);
  void WakeRanks();  // those of this process or others return from AwaitChange

 private:
  struct Header;
  struct Entry;

  AdapterArena(const AdapterArenaShape& shape, std::unique_ptr<kernels::SharedMemory> memory);
  Header& header() const;
  Entry& EntryAt(int entry) const;
  std::span<std::byte> Piece(int entry, int rank) const;
  std::optional<ArenaPlace> TakeEntry();
  absl::Status AwaitPacked(const ArenaPlace& place, int64_t until_us);

  const AdapterArenaShape shape_;
  const std::unique_ptr<kernels::SharedMemory> memory_;
  std::atomic<bool> closed_{false};
  mutable Mutex mutex_;
  std::vector<bool> used_ ABSL_GUARDED_BY(mutex_);      // by entry
  std::vector<int64_t> bytes_ ABSL_GUARDED_BY(mutex_);  // by entry
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
};

// An adapter in an arena, as Runner::SetAdapter takes it. The entry is free when it ends.
struct ArenaAdapter final : kernels::AdapterWeights {
  ArenaAdapter(std::shared_ptr<AdapterArena> of, const ArenaPlace& at)
      : arena(std::move(of)), place(at) {}
  ~ArenaAdapter() override { arena->Free(place); }
  int64_t Bytes() const override { return arena->BytesOf(place); }

  const std::shared_ptr<AdapterArena> arena;
  const ArenaPlace place;
};

}  // namespace quire
