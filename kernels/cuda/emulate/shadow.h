// The last accesses to each word of memory, and whether they come before the current access: exact
// detection of races.
//
// A Cell represents an aligned word of 4 bytes of shared or global memory; accesses to parts of a
// word split it into cells of one byte. Order comes from four things alone: a thread's own order,
// block barriers, warp barriers (within the warp), and fence + atomic + fence between blocks. All
// threads of a block pass a block barrier and all lanes a warp barrier, so one counter per block
// and one per warp describe exactly what is ordered; between blocks a list of what was released and
// acquired does.
//
// Invariants:
// 1. A cell holds its last write, and the reads since then that no later read is ordered after,
//    folded to the smallest of: one thread, lanes of one warp, warps of one block, several blocks.
// 2. No thread may write in a launch what several blocks have read in it. (Ordering all of those
//    reads before a write is possible in principle; no kernel here does so.)
// 3. Stamps of an earlier launch are ordered before everything that a thread does after it has
//    waited for the launches before its own, which the runtime orders; before that, only stamps of
//    launches that had ended by then.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace quire::kernels::cuda::emulate {

enum class Mark : uint16_t { kNone, kThread, kLanes, kWarps, kBlocks, kAtomic, kPending, kSplit };

// A thread at a moment. `block` counts blocks over all launches, from 1.
struct Stamp {
  uint32_t block = 0;
  uint32_t epoch = 0;       // block barriers passed
  uint32_t warp_epoch = 0;  // warp barriers passed
  uint16_t fences = 0;      // of this thread
  uint16_t thread : 12 = 0;
  uint16_t mark : 4 = 0;

  Mark GetMark() const { return static_cast<Mark>(mark); }
  uint32_t Warp() const { return thread / 32; }
  Stamp With(Mark m) const {
    Stamp s = *this;
    s.mark = static_cast<uint16_t>(m);
    return s;
  }
};

struct Cell {
  Stamp write;
  Stamp read;
};

// What a thread acquired: everything before `released` is visible to everything after `acquired`.
struct Acquisition {
  Stamp released;  // at its fence; fences = those it had made, this one included
  Stamp acquired;
};

// The thread that makes the access, now.
struct Accessor {
  Stamp stamp;               // marked kThread
  uint32_t first_block = 1;  // blocks below it had ended before the thread came so far
  const std::vector<Acquisition>* acquisitions = nullptr;  // of its block
};

enum class Access : uint8_t { kRead, kWrite, kAtomic, kAsyncBegin, kAsyncEnd };

// The fault, and the other thread of it; `what` is null when there is none.
struct Conflict {
  const char* what = nullptr;
  Stamp other;
};

// Is `before` (one thread, or a folded mark) ordered before the current access?
bool OrderedBefore(const Stamp& before, const Accessor& now);

// True for most of what OrderedBefore is true for: earlier launches and block barriers.
inline bool SurelyBefore(const Stamp& before, const Accessor& now) {
  if (before.block < now.first_block) return true;
  return before.block == now.stamp.block && before.epoch < now.stamp.epoch &&
         before.GetMark() != Mark::kBlocks;
}

// Do folded reads hold one more, as they are?
inline bool StandsFor(const Stamp& reads, const Stamp& one) {
  if (reads.block != one.block) return false;
  const Mark mark = reads.GetMark();
  return mark == Mark::kBlocks || (mark == Mark::kWarps && reads.epoch == one.epoch);
}

// Checks accesses and keeps cells up to date. One per kind of memory.
class Shadow {
 public:
  // `must_be_written`: a read of bytes that no thread wrote is an error (shared memory).
  explicit Shadow(bool must_be_written) : must_be_written_(must_be_written) {}

  // Bytes [first, first + count) of the word of `cell`.
  Conflict Touch(Cell& cell, uint32_t first, uint32_t count, Access access, const Accessor& now);

  // A read or a write of a whole word that is quickly seen to be in order. False: nothing has been
  // done, call Touch.
  bool TouchQuickly(Cell& cell, bool read, const Accessor& now) const {
    const Mark last = cell.write.GetMark();
    if (last == Mark::kSplit || last == Mark::kPending) return false;
    if (last == Mark::kNone && read && must_be_written_) return false;
    if (!SurelyBefore(cell.write, now)) return false;
    if (read && StandsFor(cell.read, now.stamp)) return true;
    if (!SurelyBefore(cell.read, now)) return false;
    if (read) {
      cell.read = now.stamp;
    } else {
      cell.read = Stamp();
      cell.write = now.stamp;
    }
    return true;
  }

  // Forgets a cell, split or not.
  void Clear(Cell& cell);

 private:
  Conflict TouchOne(Cell& cell, Access access, const Accessor& now) const;
  Conflict Read(Cell& cell, const Accessor& now) const;
  void Split(Cell& cell);

  bool must_be_written_;
  std::vector<std::array<Cell, 4>> split_;
  std::vector<uint32_t> free_;
};

}  // namespace quire::kernels::cuda::emulate
