#include "worker/model/weight_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/check.h"
#include "worker/load/mapped_file.h"

namespace quire::model {

WeightMemory::~WeightMemory() {
  for (std::span<std::byte> block : blocks_) munmap(block.data(), block.size());
}

std::byte* WeightMemory::Allocate(int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  QUIRE_CHECK_MSG(data != MAP_FAILED, "out of memory for weights");
  blocks_.emplace_back(static_cast<std::byte*>(data), size);
  return blocks_.back().data();
}

void WeightMemory::Release(const void* data, int64_t bytes) const {
  const auto* byte = static_cast<const std::byte*>(data);
  for (std::span<std::byte> block : blocks_) {
    if (byte >= block.data() && byte < block.data() + block.size()) load::DropPages(data, bytes);
  }
}

void WeightMemory::ReleaseAll() const {
  for (std::span<std::byte> block : blocks_) {
    load::DropPages(block.data(), static_cast<int64_t>(block.size()));
  }
}

}  // namespace quire::model
