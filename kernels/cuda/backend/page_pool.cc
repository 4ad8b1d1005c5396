#include "kernels/cuda/backend/page_pool.h"

#include <algorithm>

namespace quire::kernels::cuda {

runtime::Error PagePool::Reserve(int64_t page_bytes, int64_t pages, int64_t spare_pages) {
  if (runtime::Error error = runtime_.RangeGranularity(&granularity_); !error.empty()) return error;
  page_bytes_ = page_bytes;
  pages_ = pages;
  const auto granule = static_cast<int64_t>(granularity_);
  const int64_t end = ((pages + spare_pages) * page_bytes + granule - 1) / granule * granule;
  spare_begin_ = pages * page_bytes / granule * granule;
  runtime::Error error = runtime_.ReserveRange(static_cast<size_t>(end), &range_);
  if (!error.empty()) return error;
  mapped_bytes_ = end - spare_begin_;
  return runtime_.MapRange(range_, static_cast<size_t>(spare_begin_),
                           static_cast<size_t>(mapped_bytes_));
}

runtime::Error PagePool::MapPages(int64_t margin_bytes) {
  size_t free = 0;
  size_t total = 0;
  if (runtime::Error error = runtime_.MemoryInfo(&free, &total); !error.empty()) return error;
  const auto granule = static_cast<int64_t>(granularity_);
  const int64_t room = std::max<int64_t>(0, static_cast<int64_t>(free) - margin_bytes);
  const int64_t bytes = std::min(room / granule * granule, spare_begin_);
  if (bytes > 0) {
    runtime::Error error = runtime_.MapRange(range_, 0, static_cast<size_t>(bytes));
    if (!error.empty()) return error;
  }
  mapped_bytes_ += bytes;
  // With all of the front mapped also the page that reaches into the spare pages' granule is whole.
  page_count_ = bytes == spare_begin_ ? pages_ : bytes / page_bytes_;
  return {};
}

}  // namespace quire::kernels::cuda
