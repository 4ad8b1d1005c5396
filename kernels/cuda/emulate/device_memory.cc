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

void* DeviceMemory::Allocate(size_t bytes) {
  const size_t room = RoundUp(std::max<size_t>(bytes, 1), kAlignment) + kAlignment;  // a red zone
  const auto gap =
      std::find_if(free_.begin(), free_.end(), [&](const auto& g) { return g.second >= room; });
  if (gap == free_.end()) return nullptr;
  const auto [at, length] = *gap;
  free_.erase(gap);
  if (length > room) free_[at + room] = length - room;
  allocated_[at] = bytes;
  for (size_t i = 0; i < bytes; i += kGranule) {
    valid_[(at + i) / kGranule] = static_cast<uint8_t>(std::min(kGranule, bytes - i));
  }
  memset(base_ + at, 0xff, bytes);
  return base_ + at;
}

bool DeviceMemory::Free(void* at) {
  const auto found = Owns(at) ? allocated_.find(Offset(at)) : allocated_.end();
  if (found == allocated_.end()) return false;
  auto [offset, bytes] = *found;
  allocated_.erase(found);
  memset(valid_ + offset / kGranule, 0, (bytes + kGranule - 1) / kGranule);
  size_t room = RoundUp(std::max<size_t>(bytes, 1), kAlignment) + kAlignment;
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
