// Sleeping on a word of memory that processes share, until another process changes it.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire::kernels {

// Sleeps while `word` is `seen`, for at most `timeout_micros`. May return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_micros);
// Wakes all that sleep on `word`.
void FutexWakeAll(std::atomic<uint32_t>& word);

// A monotonic clock, the same in all processes.
int64_t FutexNowMicros();

// For the inside of a short spin.
inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace quire::kernels
