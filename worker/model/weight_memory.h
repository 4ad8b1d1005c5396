// Memory for the few weights that cannot be used where they lie in the file: joined biases,
// reordered rows.
//
// Owned by the loaded Model; filled while its program is built, read-only afterwards.
// 1. A block's address stays the same until the object ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::model {

class WeightMemory {
 public:
  WeightMemory() = default;
  ~WeightMemory();
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  // `bytes` zero bytes on whole pages of their own. Running out of memory ends the process.
  std::byte* Allocate(int64_t bytes);

  // Gives the pages of a block back once a backend has packed it: its bytes read as zero
  // afterwards. Memory that is not of this object is left alone.
  void Release(const void* data, int64_t bytes) const;
  // The same for all blocks.
  void ReleaseAll() const;

 private:
  std::vector<std::span<std::byte>> blocks_;
};

}  // namespace quire::model
