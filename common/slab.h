// Objects of one type side by side in huge pages, for what a loop visits one after the other.
// Between other allocations each object has a page of its own, and each visit costs a look-up of a
// page, too.
//
// Owner: one thread. Objects keep their addresses. Memory is taken 2 MiB at a time and kept until
// the slab ends: as much as the objects that lived at once.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/huge_pages.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace quire {

template <class T>
class Slab {
 public:
  struct Deleter {
    Slab* slab = nullptr;
    void operator()(T* object) const { slab->Destroy(object); }
  };
  using Owned = std::unique_ptr<T, Deleter>;  // ends before its slab

  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() { QUIRE_CHECK_MSG(living_ == 0, "an object outlives its slab"); }

  template <class... Args>
  Owned Make(Args&&... args) {
    if (free_.empty()) Grow();
    Place* const place = free_.back();
    Unpoison(place);
    T* const object = ::new (place->bytes) T(std::forward<Args>(args)...);
    free_.pop_back();
    ++living_;
    return Owned(object, Deleter{this});
  }

  size_t living() const { return living_; }
  size_t capacity() const { return chunks_.size() * kPerChunk; }

 private:
  struct Place {
    alignas(T) std::byte bytes[sizeof(T)];
  };
  using Chunk = std::vector<std::byte, HugePageAllocator<std::byte>>;
  static constexpr size_t kChunkBytes = HugePageAllocator<std::byte>::kPage;
  static constexpr size_t kPerChunk = kChunkBytes / sizeof(Place);
  static_assert(kPerChunk > 0);

  void Grow() {
    Chunk& chunk = chunks_.emplace_back();
    chunk.reserve(kChunkBytes);
    Place* const first = reinterpret_cast<Place*>(chunk.data());
    free_.reserve(capacity());
    for (size_t i = kPerChunk; i-- > 0;) {
      free_.push_back(first + i);
      Poison(first + i);
    }
  }
  void Destroy(T* object) {
    QUIRE_CHECK(living_ > 0);
    object->~T();
    Place* const place = reinterpret_cast<Place*>(object);
    free_.push_back(place);
    Poison(place);
    --living_;
  }

  // A read of what has ended is an error that AddressSanitizer sees.
  static void Poison([[maybe_unused]] Place* place) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(place, sizeof(Place));
#endif
  }
  static void Unpoison([[maybe_unused]] Place* place) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(place, sizeof(Place));
#endif
  }

  std::vector<Chunk> chunks_;
  std::vector<Place*> free_;  // a stack: what ended last is used first
  size_t living_ = 0;
};

}  // namespace quire
