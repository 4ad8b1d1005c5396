#include "kernels/cuda/emulate/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::kernels::cuda::emulate {
namespace {

constexpr size_t kAlignment = 256;

// Zero pages that cost nothing until they are touched.
void* Reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    fprintf(stderr, "emulated device: cannot reserve %zu bytes of addresses\n", bytes);
    abort();
  }
  return at;
}

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

DeviceMemory::DeviceMemory()
    : base_(static_cast<unsigned char*>(Reserve(kBytes))),
      cells_(static_cast<Cell*>(Reserve(kBytes / 4 * sizeof(Cell)))),
      valid_(static_cast<uint8_t*>(Reserve(kBytes / kGranule))) {
  free_[kAlignment] = kBytes - kAlignment;
}

DeviceMemory::~DeviceMemory() {
  munmap(base_, kBytes);
  munmap(cells_, kBytes / 4 * sizeof(Cell));
  munmap(valid_, kBytes / kGranule);
}

void* DeviceMemory::Place(size_t bytes) {
  const size_t room = RoundUp(std::max<size_t>(bytes, 1), kAlignment) + kAlignment;  // a red zone
  const auto gap =
      std::find_if(free_.begin(), free_.end(), [&](const auto& g) { return g.second >= room; });
  if (gap == free_.end()) return nullptr;
  const auto [at, length] = *gap;
  free_.erase(gap);
  if (length > room) free_[at + room] = length - room;
  allocated_[at].bytes = bytes;
  return base_ + at;
}

void DeviceMemory::SetValid(size_t offset, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kGranule) {
    valid_[(offset + i) / kGranule] = static_cast<uint8_t>(std::min(kGranule, bytes - i));
  }
  memset(base_ + offset, 0xff, bytes);
  used_ += bytes;
}

void* DeviceMemory::Allocate(size_t bytes) {
  if (bytes > free()) return nullptr;
  void* at = Place(bytes);
  if (at != nullptr) SetValid(Offset(at), bytes);
  return at;
}

void* DeviceMemory::AllocateOfHost(size_t bytes) {
  void* at = Place(bytes);
  if (at == nullptr) return nullptr;
  SetValid(Offset(at), bytes);
  used_ -= bytes;
  allocated_[Offset(at)].of_host = true;
  return at;
}

void* DeviceMemory::ReserveRange(size_t bytes) {
  if (bytes == 0 || bytes % kRangeGranularity != 0) return nullptr;
  void* at = Place(bytes);
  if (at != nullptr) allocated_[Offset(at)].is_range = true;
  return at;
}

bool DeviceMemory::MapRange(void* range, size_t offset, size_t bytes) {
  const auto found = Owns(range) ? allocated_.find(Offset(range)) : allocated_.end();
  if (found == allocated_.end() || !found->second.is_range) return false;
  Allocation& of = found->second;
  if (bytes == 0 || bytes % kRangeGranularity != 0 || offset % kRangeGranularity != 0 ||
      offset > of.bytes || bytes > of.bytes - offset || bytes > free()) {
    return false;
  }
  const auto overlaps = [&](const auto& part) {
    return part.first < offset + bytes && offset < part.first + part.second;
  };
  if (std::any_of(of.mapped.begin(), of.mapped.end(), overlaps)) return false;
  of.mapped[offset] = bytes;
  SetValid(found->first + offset, bytes);
  return true;
}

bool DeviceMemory::Free(void* at) {
  const auto found = Owns(at) ? allocated_.find(Offset(at)) : allocated_.end();
  if (found == allocated_.end()) return false;
  const size_t offset = found->first;
  Allocation gone = std::move(found->second);
  allocated_.erase(found);
  if (!gone.is_range) gone.mapped[0] = gone.bytes;
  for (const auto& [begin, bytes] : gone.mapped) {
    memset(valid_ + (offset + begin) / kGranule, 0, (bytes + kGranule - 1) / kGranule);
    if (!gone.of_host) used_ -= bytes;
  }
  size_t room = RoundUp(std::max<size_t>(gone.bytes, 1), kAlignment) + kAlignment;
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + room) {
    room += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += room;
      return true;
    }
  }
  free_[offset] = room;
  return true;
}

bool DeviceMemory::Valid(size_t offset, size_t bytes) const {
  const size_t end = offset + bytes;
  for (size_t i = offset; i < end; i = (i / kGranule + 1) * kGranule) {
    const size_t last = std::min(end, (i / kGranule + 1) * kGranule) - 1;
    if (last % kGranule >= valid_[i / kGranule]) return false;
  }
  return true;
}

}  // namespace quire::kernels::cuda::emulate
