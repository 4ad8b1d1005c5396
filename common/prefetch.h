// Asks the processor for memory that is needed a little later.
//
// Any thread; changes nothing. Not the compiler's own __builtin_prefetch: a function that does
// nothing else is taken for one without effect, and GCC drops its calls, prefetches and all. The
// empty statement is one that it keeps.
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
