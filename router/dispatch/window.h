// How far a worker may be ahead of the consumer of a choice's outputs.
//
// Owner: one choice of a request of the dispatcher. Pure values.
//  1. granted() never shrinks within an attempt, and is at least taken + 1.
//  2. A grant is worth its frame: the window moves in steps of a quarter of its size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/check.h"

namespace quire {

class Window {
 public:
  explicit Window(uint32_t size) : size_(size) { QUIRE_CHECK(size > 0); }

  // An attempt starts with `accepted` outputs: how many more it may produce at first, at least one.
  uint64_t Room(uint64_t accepted) const {
    QUIRE_CHECK(taken_ <= accepted);
    return std::max<uint64_t>(1, taken_ + size_ - std::min(accepted, taken_ + size_));
  }
  void Begin(uint64_t granted) { granted_ = granted; }

  // Everything below `index` has been taken. Returns the new limit when it is worth sending.
  std::optional<uint64_t> Take(uint64_t index) {
    taken_ = std::max(taken_, index);
    const uint64_t limit = taken_ + size_;
    if (limit < granted_ + std::max<uint64_t>(1, size_ / 4)) return std::nullopt;
    granted_ = limit;
    return granted_;
  }

  uint32_t size() const { return size_; }
  uint64_t granted() const { return granted_; }
  uint64_t taken() const { return taken_; }

 private:
  uint32_t size_;
  uint64_t taken_ = 0;
  uint64_t granted_ = 0;
};

}  // namespace quire
