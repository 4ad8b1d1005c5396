#include "kernels/collectives/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace quire::kernels {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Without FUTEX_PRIVATE_FLAG: the word may be mapped by several processes.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_micros) {
  if (timeout_micros <= 0) return;
  timespec timeout{};
  timeout.tv_sec = timeout_micros / 1'000'000;
  timeout.tv_nsec = timeout_micros % 1'000'000 * 1'000;
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int64_t FutexNowMicros() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000LL + now.tv_nsec / 1'000;
}

}  // namespace quire::kernels
