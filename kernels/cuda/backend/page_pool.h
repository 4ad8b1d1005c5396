// The pages of keys and values: addresses for every page that there may be, memory for as many as
// fit.
//
// Owned by a CudaProgram; its thread. A captured graph keeps addresses, so they are reserved before
// anything is captured; how much memory a device has left is known only afterwards. The spare pages
// follow the pool's and have memory from the beginning.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

class PagePool {
 public:
  explicit PagePool(runtime::Runtime& runtime) : runtime_(runtime) {}
  ~PagePool() {
    if (range_ != nullptr) runtime_.FreeRange(range_);
  }
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Reserves addresses for `pages` pages and the spare ones after them, and memory for the latter.
  runtime::Error Reserve(int64_t page_bytes, int64_t pages, int64_t spare_pages);
  // Allocates memory for as many pages as leave `margin_bytes` of the free memory, at most for all.
  runtime::Error MapPages(int64_t margin_bytes);

  std::byte* begin() const { return static_cast<std::byte*>(range_); }
  int64_t page_count() const { return page_count_; }  // that have memory
  int64_t bytes() const { return mapped_bytes_; }     // of memory, spare pages included

 private:
  runtime::Runtime& runtime_;
  void* range_ = nullptr;
  size_t granularity_ = 1;
  int64_t page_bytes_ = 0;
  int64_t pages_ = 0;
  int64_t spare_begin_ = 0;  // where the memory of the spare pages begins: at a granule
  int64_t page_count_ = 0;
  int64_t mapped_bytes_ = 0;
};

}  // namespace quire::kernels::cuda
