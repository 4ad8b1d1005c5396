// An allocator for large tables that are read at random places: from 2 MiB on they are in huge
// pages where the system grants them, so that a read costs its own miss and not also a walk through
// page tables.
//
// Any thread; stateless. Only a hint: without huge pages everything works the same.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace quire {

template <class T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kPage = size_t{2} << 20;

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}  // NOLINT: allocators convert

  T* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(T) - kPage) throw std::bad_alloc();
    const size_t bytes = count * sizeof(T);
    if (bytes < kPage) return static_cast<T*>(::operator new(bytes));
    const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    void* memory = std::aligned_alloc(kPage, rounded);
    if (memory == nullptr) throw std::bad_alloc();
    (void)::madvise(memory, rounded, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    if (count * sizeof(T) < kPage) {
      ::operator delete(memory);
    } else {
      std::free(memory);
    }
  }
  template <class U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }
};

}  // namespace quire
