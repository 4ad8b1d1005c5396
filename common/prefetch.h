// Prefetches memory that is needed a little later.
//
// Any thread; changes nothing. Not the compiler's own __builtin_prefetch: GCC treats a function
// that does nothing else as one without effect and drops its calls, including the prefetches. It
// keeps the empty statement.
#pragma once

namespace quire {

inline void PrefetchToRead(const void* at) {
  __builtin_prefetch(at, 0);
  asm volatile("");
}

inline void PrefetchToWrite(const void* at) {
  __builtin_prefetch(at, 1);
  asm volatile("");
}

}  // namespace quire
