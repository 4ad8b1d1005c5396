// Rows of bytes by index: rows whose logits are wanted, and copies of pages.
#pragma once

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// to[to_rows[i]] = from[from_rows[i]] for i in [0, rows); an index list that is null counts up.
// `to` may be `from` when no row is both read and written.
struct CopyRowsParams {
  const void* from = nullptr;
  void* to = nullptr;
  const int32_t* from_rows = nullptr;
  const int32_t* to_rows = nullptr;
  int rows = 0;
  int64_t row_bytes = 0;  // a multiple of 16
};

runtime::Error LaunchCopyRows(runtime::Runtime& runtime, runtime::StreamId stream,
                              const CopyRowsParams& params);

}  // namespace quire::kernels::cuda
