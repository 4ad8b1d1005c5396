// The emulated device's memory: one range of addresses, red zones between allocations, a shadow
// cell for every word.
//
// Owned by the Emulator. New memory is full of 0xff bytes: NaN in every float format, −1 in every
// integer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "kernels/cuda/emulate/shadow.h"

namespace quire::kernels::cuda::emulate {

class DeviceMemory {
 public:
  static constexpr size_t kBytes = size_t{1} << 30;

  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Aligned to 256 bytes; null when the range is used up, or no memory is left.
  void* Allocate(size_t bytes);
  // The same in the host's memory, which is large enough.
  void* AllocateOfHost(size_t bytes);
  // False when it is not the begin of an allocation, or of a range.
  bool Free(void* at);
  // Addresses without memory, and memory under a part of them, both in multiples of
  // kRangeGranularity. False where it is not in a range, or there is memory already, or none is
  // left.
  static constexpr size_t kRangeGranularity = size_t{64} << 10;
  void* ReserveRange(size_t bytes);
  bool MapRange(void* range, size_t offset, size_t bytes);

  // Of all memory, the part that is neither allocated nor mapped.
  size_t free() const { return total_ - used_; }
  size_t total() const { return total_; }
  // Less memory than there are addresses. Requires: at least what is used.
  void Limit(size_t total) { total_ = total; }

  // Is the address in the range, allocated or not?
  bool Owns(const void* at) const {
    return reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(base_) < kBytes;
  }
  size_t Offset(const void* at) const {
    return static_cast<size_t>(static_cast<const unsigned char*>(at) - base_);
  }
  // Is every byte of an access in an allocation?
  bool Valid(size_t offset, size_t bytes) const;
  Cell& CellAt(size_t offset) { return cells_[offset / 4]; }

 private:
  static constexpr size_t kGranule = 16;

  unsigned char* base_;
  Cell* cells_;
  uint8_t* valid_;            // by granule: how many of its bytes, from the first on, are allocated
  void* Place(size_t bytes);  // null: no gap is long enough
  void SetValid(size_t offset, size_t bytes);

  struct Allocation {
    size_t bytes = 0;
    bool is_range = false;
    bool of_host = false;
    std::map<size_t, size_t> mapped;  // of a range: offset in it → bytes
  };
  std::map<size_t, Allocation> allocated_;  // by offset
  std::map<size_t, size_t> free_;           // gaps of multiples of 256 bytes
  size_t total_ = kBytes;
  size_t used_ = 0;
};

}  // namespace quire::kernels::cuda::emulate
