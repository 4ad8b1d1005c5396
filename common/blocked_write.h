// When a peer that reads too little of what is written to it is disconnected, on both sides of an
// Attach.
#pragma once

#include <cstddef>

namespace quire {

inline constexpr int kWriteBlockedTurns = 5;  // of a second, each
inline constexpr size_t kWriteStepBytes =
    64u << 10;  // that must leave meanwhile, or everything that waits

}  // namespace quire
