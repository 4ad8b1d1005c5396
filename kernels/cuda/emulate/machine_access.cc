// What threads do to memory: checks, counts, atomics, asynchronous copies.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/cuda/emulate/machine.h"

namespace quire::kernels::cuda::emulate {
namespace {

std::string Describe(const Conflict& conflict, const char* memory, size_t offset) {
  char text[224];
  const Stamp& other = conflict.other;
  if (other.block == 0) {
    snprintf(text, sizeof(text), "%s (%s byte %zu)", conflict.what, memory, offset);
  } else {
    snprintf(text, sizeof(text), "%s (%s byte %zu; the other: thread %u after %u block barriers)",
             conflict.what, memory, offset, static_cast<unsigned>(other.thread), other.epoch);
  }
  return text;
}

// Adds a stamp to what an atomic variable has released, in place of an earlier one of its thread.
void Keep(std::vector<Stamp>& list, const Stamp& stamp) {
  for (Stamp& have : list) {
    if (have.block == stamp.block && have.thread == stamp.thread) {
      if (stamp.fences > have.fences) have = stamp;
      return;
    }
  }
  list.push_back(stamp);
}

}  // namespace

Stamp Machine::Now(const Thread& thread) const {
  Stamp stamp;
  stamp.block = thread.warp->block->serial;
  stamp.epoch = thread.warp->block->epoch;
  stamp.warp_epoch = thread.warp->epoch;
  stamp.fences = thread.fences;
  stamp.thread = thread.place.thread & 0xfffu;
  stamp.mark = static_cast<uint16_t>(Mark::kThread) & 0xfu;
  return stamp;
}

Accessor Machine::AccessorOf(const Thread& thread) const {
  return Accessor{Now(thread), thread.waited ? first_serial_ : running_serial_,
                  &thread.warp->block->acquisitions};
}

bool Machine::Touch(Thread& thread, const void* at, size_t bytes, Access access) {
  if (!IsWatched(at)) return true;
  const size_t in_block =
      reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(thread.shared);
  if (in_block < shape_.shared_bytes && in_block + bytes <= shape_.shared_bytes) {
    TouchShared(thread, in_block, bytes, access);
    return true;
  }
  if (InSlab(at)) {
    Violation(thread, "touches shared memory behind its block's (byte " + std::to_string(in_block) +
                          " of " + std::to_string(shape_.shared_bytes) + ")");
    return false;
  }
  const size_t offset = memory_.Offset(at);
  if (!memory_.Valid(offset, bytes)) {
    Violation(thread, access == Access::kRead
                          ? "reads global memory outside any allocation (byte " +
                                std::to_string(offset) + " of the device)"
                          : "writes global memory outside any allocation (byte " +
                                std::to_string(offset) + " of the device)");
    return false;
  }
  TouchGlobal(thread, offset, bytes, access);
  return true;
}

namespace {

// Words that an access covers whole, all in order at first sight; how many bytes of it that were.
size_t TouchWordsQuickly(const Shadow& shadow, Cell* cells, size_t bytes, Access access,
                         const Accessor& now) {
  if (access != Access::kRead && access != Access::kWrite) return 0;
  size_t done = 0;
  while (done + 4 <= bytes && shadow.TouchQuickly(cells[done / 4], access == Access::kRead, now)) {
    done += 4;
  }
  return done;
}

}  // namespace

void Machine::TouchShared(Thread& thread, size_t offset, size_t bytes, Access access) {
  const Accessor now = AccessorOf(thread);
  std::vector<Cell>& cells = thread.warp->block->cells;
  size_t i = offset;
  if (i % 4 == 0) i += TouchWordsQuickly(shared_shadow_, &cells[i / 4], bytes, access, now);
  for (bool good = true; i < offset + bytes;) {
    const uint32_t first = i % 4;
    const uint32_t count = static_cast<uint32_t>(std::min<size_t>(4 - first, offset + bytes - i));
    const Conflict conflict = shared_shadow_.Touch(cells[i / 4], first, count, access, now);
    if (conflict.what != nullptr && good) {
      Violation(thread, Describe(conflict, "shared", i));
      good = false;
    }
    i += count;
  }
}

void Machine::TouchGlobal(Thread& thread, size_t offset, size_t bytes, Access access) {
  const Accessor now = AccessorOf(thread);
  size_t i = offset;
  if (i % 4 == 0) i += TouchWordsQuickly(global_shadow_, &memory_.CellAt(i), bytes, access, now);
  for (bool good = true; i < offset + bytes;) {
    const uint32_t first = i % 4;
    const uint32_t count = static_cast<uint32_t>(std::min<size_t>(4 - first, offset + bytes - i));
    Conflict conflict = global_shadow_.Touch(memory_.CellAt(i), first, count, access, now);
    if (conflict.other.block != 0 && conflict.other.block < first_serial_) {
      conflict.what = "uses memory of a kernel before it that it has not waited for";
    }
    if (conflict.what != nullptr && good) {
      Violation(thread, Describe(conflict, "global", i));
      good = false;
    }
    i += count;
  }
}

void Machine::Misaligned(const void* at, size_t bytes) {
  if (!IsWatched(at)) return;
  Violation(*current_, "touches " + std::to_string(bytes) +
                           " bytes at an address that is not a multiple of " +
                           std::to_string(bytes));
}

bool Machine::TouchWatched(const void* site, const void* at, size_t bytes, Access access) {
  if (!Touch(*current_, at, bytes, access)) return false;
  Warp& warp = *current_->warp;
  const uint32_t lane = current_->Lane();
  if (memory_.Owns(at)) {
    const auto offset = static_cast<uint32_t>(memory_.Offset(at));
    const bool read = access == Access::kRead;
    const uint32_t cost =
        (read ? warp.reads : warp.writes).Note(site, lane, offset, static_cast<uint32_t>(bytes));
    (read ? report_.counters.global_read_bytes : report_.counters.global_write_bytes) += cost;
  } else if (bytes == 16 && InShared(at)) {
    const auto offset =
        static_cast<uint32_t>(static_cast<const unsigned char*>(at) - current_->shared);
    report_.counters.bank_conflicts += warp.banks.Note(site, lane, offset, 16);
  }
  return true;
}

void Machine::CountWarp(Warp& warp) {
  if (!checks_) return;
  report_.counters.bank_conflicts += warp.banks.Finish();
  report_.counters.global_read_bytes += warp.reads.Finish();
  report_.counters.global_write_bytes += warp.writes.Finish();
}

void Machine::Fence() {
  if (!checks_) return;
  Thread& self = *current_;
  ++self.fences;
  const Stamp now = Now(self);
  Block& block = SelfBlock();
  for (const Stamp& stamp : self.seen) {
    if (stamp.block != block.serial) block.acquisitions.push_back({stamp, now});
  }
  self.seen.clear();
  self.last_fence = now;
  // All that it may rely on by now it also hands on.
  self.carried.clear();
  const Accessor accessor = AccessorOf(self);
  for (const Acquisition& a : block.acquisitions) {
    if (OrderedBefore(a.acquired, accessor)) Keep(self.carried, a.released);
  }
  MaybeYield();
}

void Machine::Exchange(Thread& thread, const void* at) {
  std::vector<Stamp>& released = released_[reinterpret_cast<uintptr_t>(at)];
  for (const Stamp& stamp : released) Keep(thread.seen, stamp);
  if (thread.last_fence.GetMark() == Mark::kNone) return;
  Keep(released, thread.last_fence);
  for (const Stamp& stamp : thread.carried) Keep(released, stamp);
}

uint64_t Machine::Atomic(emulated::AtomicOp op, void* at, uint32_t bytes, uint64_t operand) {
  MaybeYield();
  if (!TouchAt(at, at, bytes, Access::kAtomic)) return 0;
  if (checks_ && !InShared(at)) Exchange(*current_, at);
  uint64_t before = 0;
  memcpy(&before, at, bytes);
  uint64_t after = before;
  switch (op) {
    case emulated::AtomicOp::kAdd:
      after = before + operand;
      break;
    case emulated::AtomicOp::kMax:
      after = std::max(before, operand);
      break;
    case emulated::AtomicOp::kMin:
      after = std::min(before, operand);
      break;
    case emulated::AtomicOp::kExchange:
      after = operand;
      break;
    case emulated::AtomicOp::kOr:
      after = before | operand;
      break;
    case emulated::AtomicOp::kLoad:
      break;
  }
  memcpy(at, &after, bytes);
  MaybeYield();
  return before;
}

void Machine::AsyncCopy(unsigned char* to, const unsigned char* from, uint32_t valid,
                        const void* site) {
  Thread& self = *current_;
  if (!checks_) {
    if (valid == 16) {
      memcpy(to, from, 16);
    } else {
      memset(to, 0, 16);
      memcpy(to, from, valid);
    }
    return;
  }
  ++report_.counters.async_copies;
  if (valid > 16 || !InShared(to) || reinterpret_cast<uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    Violation(self, "starts an asynchronous copy that is not 16 aligned bytes to shared memory");
    return;
  }
  if (valid > 0 && !TouchAt(site, from, valid, Access::kRead)) return;
  if (!TouchAt(site, to, 16, Access::kAsyncBegin)) return;
  PendingCopy copy{to, from, valid, self.commits, false};
  if (random_.Below(4) == 0) Move(copy);
  self.copies.push_back(copy);
}

void Machine::Move(PendingCopy& copy) {
  if (copy.moved) return;
  memcpy(copy.to, copy.from, copy.valid);
  memset(copy.to + copy.valid, 0, 16 - copy.valid);
  copy.moved = true;
}

void Machine::MoveSome(Thread& thread) {
  if (thread.copies.empty() || random_.Below(4) != 0) return;
  Move(thread.copies[random_.Below(static_cast<uint32_t>(thread.copies.size()))]);
}

void Machine::AsyncWait(uint32_t newest) {
  Thread& self = *current_;
  if (!checks_) return;
  size_t kept = 0;
  for (PendingCopy& copy : self.copies) {
    // Copies that no commit followed belong to no group: no wait is for them.
    if (copy.group + newest < self.commits) {
      Move(copy);
      Touch(self, copy.to, 16, Access::kAsyncEnd);
    } else {
      self.copies[kept++] = copy;
    }
  }
  self.copies.resize(kept);
}

}  // namespace quire::kernels::cuda::emulate
