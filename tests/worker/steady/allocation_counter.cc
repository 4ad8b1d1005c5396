#include "tests/worker/steady/allocation_counter.h"

#include <execinfo.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

constexpr int64_t kShown = 4;
constexpr int kFrames = 24;

std::atomic<bool> counting{false};
std::atomic<bool> showing{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> bytes{0};
thread_local bool exempt = false;

void Count(std::size_t size) {
  if (!counting.load(std::memory_order_relaxed) || exempt) return;
  bytes += static_cast<int64_t>(size);
  if (++allocations > kShown || !showing) return;
  exempt = true;  // whatever the printing allocates
  void* frames[kFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kFrames), 2);
  exempt = false;
}

void* Allocate(std::size_t size) {
  Count(size);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* AllocateAligned(std::size_t size, std::align_val_t alignment) {
  Count(size);
  const std::size_t align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void* operator new(std::size_t size, std::align_val_t a) { return AllocateAligned(size, a); }
void* operator new[](std::size_t size, std::align_val_t a) { return AllocateAligned(size, a); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace quire::test {

int64_t CountAllocations(const std::function<void()>& work) {
  showing = std::getenv("QUIRE_SHOW_ALLOCATIONS") != nullptr;
  allocations = 0;
  bytes = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

int64_t CountAllocatedBytes(const std::function<void()>& work) {
  CountAllocations(work);
  return bytes;
}

ExemptScope::ExemptScope() : before_(exempt) { exempt = true; }
ExemptScope::~ExemptScope() { exempt = before_; }

}  // namespace quire::test
