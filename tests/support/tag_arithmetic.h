// The arithmetic of the tag model: what devices compute, and whoever wants to foretell its answers.
//
// Pure.
#pragma once

#include <cstdint>

namespace quire::test {

inline constexpr uint64_t kNoTag = 0xffffffffffffffffull;  // of a slot that nobody has written

inline uint64_t TagMix(uint64_t a, uint64_t b) {  // SplitMix64's finaliser over both
  uint64_t x = a * 0x9E3779B97F4A7C15ull + b + 0x7F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// The tag before position 0.
inline uint64_t TagRoot(uint64_t salt) { return TagMix(salt, 0x5A17); }
inline uint64_t TagOf(uint64_t previous, int32_t token, int64_t position, int32_t group) {
  return TagMix(TagMix(previous, static_cast<uint64_t>(token)),
                static_cast<uint64_t>(position) * 64 + static_cast<uint64_t>(group));
}
// Folds one more key into what a query saw; from 1.
inline uint64_t TagSeen(uint64_t seen, uint64_t tag) { return TagMix(seen, tag); }
inline float TagLogit(uint64_t seen, int32_t id) {
  return static_cast<float>(TagMix(seen, static_cast<uint64_t>(id)) % 8);
}

}  // namespace quire::test
