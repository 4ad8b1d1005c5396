#include "kernels/cuda/emulate/shadow.h"

namespace quire::kernels::cuda::emulate {
namespace {

bool SameWarp(const Stamp& a, const Stamp& b) { return a.Warp() == b.Warp(); }

// Is `a`, of the block of `later`, ordered before it by that block's barriers or its own order?
bool OrderedInBlock(const Stamp& a, const Stamp& later) {
  if (a.epoch < later.epoch) return true;
  const Mark mark = a.GetMark();
  if (mark == Mark::kWarps || mark == Mark::kBlocks) return false;
  if (SameWarp(a, later) && a.warp_epoch < later.warp_epoch) return true;
  return mark != Mark::kLanes && a.thread == later.thread;
}

// Is `a`, of another block, covered by what that block released at `fence`?
bool Released(const Stamp& a, const Stamp& fence) {
  if (a.block != fence.block) return false;
  if (a.epoch < fence.epoch) return true;
  const Mark mark = a.GetMark();
  if (mark == Mark::kWarps || mark == Mark::kBlocks) return false;
  if (SameWarp(a, fence) && a.warp_epoch < fence.warp_epoch) return true;
  return mark != Mark::kLanes && a.thread == fence.thread && a.fences < fence.fences;
}

// The smallest mark that holds two unordered reads.
Mark Fold(const Stamp& a, const Stamp& b) {
  if (a.GetMark() == Mark::kBlocks || a.block != b.block) return Mark::kBlocks;
  if (a.GetMark() == Mark::kWarps || !SameWarp(a, b)) return Mark::kWarps;
  return Mark::kLanes;
}

}  // namespace

bool OrderedBefore(const Stamp& before, const Accessor& now) {
  if (before.block < now.first_block) return true;
  if (before.GetMark() == Mark::kBlocks) return false;
  if (before.block == now.stamp.block) return OrderedInBlock(before, now.stamp);
  for (const Acquisition& a : *now.acquisitions) {
    if (Released(before, a.released) && OrderedInBlock(a.acquired, now.stamp)) return true;
  }
  return false;
}

Conflict Shadow::Read(Cell& cell, const Accessor& now) const {
  const Stamp me = now.stamp.With(Mark::kThread);
  if (cell.read.GetMark() == Mark::kNone || OrderedBefore(cell.read, now)) {
    cell.read = me;
    return {};
  }
  const Mark mark = Fold(cell.read, me);
  // The later of two lanes' reads stands for both: it is the one that a barrier must come after.
  cell.read = me.With(mark);
  return {};
}

Conflict Shadow::TouchOne(Cell& cell, Access access, const Accessor& now) const {
  if (access == Access::kAsyncEnd) {
    cell.write = now.stamp.With(Mark::kThread);
    cell.read = Stamp();
    return {};
  }
  const Mark last = cell.write.GetMark();
  if (last == Mark::kPending && cell.write.block >= now.first_block) {
    return {"touches bytes that an asynchronous copy is still writing", cell.write};
  }
  const bool read = access == Access::kRead;
  if (last == Mark::kNone) {
    if (read && must_be_written_) return {"reads shared memory that was never written", {}};
  } else if (!(last == Mark::kAtomic && access == Access::kAtomic) &&
             !OrderedBefore(cell.write, now)) {
    return {read ? "reads what another thread wrote, with no barrier or fence between"
                 : "writes what another thread wrote, with no barrier or fence between",
            cell.write};
  }
  if (read) return Read(cell, now);
  if (cell.read.GetMark() != Mark::kNone && !OrderedBefore(cell.read, now)) {
    return {"writes what another thread read, with no barrier or fence between", cell.read};
  }
  cell.read = Stamp();
  cell.write = now.stamp.With(access == Access::kAtomic       ? Mark::kAtomic
                              : access == Access::kAsyncBegin ? Mark::kPending
                                                              : Mark::kThread);
  return {};
}

void Shadow::Split(Cell& cell) {
  uint32_t at;
  if (free_.empty()) {
    at = static_cast<uint32_t>(split_.size());
    split_.emplace_back();
  } else {
    at = free_.back();
    free_.pop_back();
  }
  split_[at].fill(cell);
  cell.write = Stamp().With(Mark::kSplit);
  cell.write.block = at;
}

void Shadow::Clear(Cell& cell) {
  if (cell.write.GetMark() == Mark::kSplit) free_.push_back(cell.write.block);
  cell = Cell();
}

Conflict Shadow::Touch(Cell& cell, uint32_t first, uint32_t count, Access access,
                       const Accessor& now) {
  const bool whole = count == 4;
  if (cell.write.GetMark() != Mark::kSplit) {
    if (whole) return TouchOne(cell, access, now);
    Split(cell);
  }
  std::array<Cell, 4>& bytes = split_[cell.write.block];
  Conflict found;
  for (uint32_t i = first; i < first + count; ++i) {
    const Conflict conflict = TouchOne(bytes[i], access, now);
    if (found.what == nullptr) found = conflict;
  }
  if (whole && access != Access::kRead && found.what == nullptr) {
    const Cell joined = bytes[0];  // all four have just been written alike
    free_.push_back(cell.write.block);
    cell = joined;
  }
  return found;
}

}  // namespace quire::kernels::cuda::emulate
