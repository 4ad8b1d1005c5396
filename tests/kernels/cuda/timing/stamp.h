// A kernel of one thread that writes down what the device's clock says where it stands in a stream
// or graph: when all before it has ended.
#pragma once

#include <cstdint>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::test {

struct Stamp {
  uint64_t nanos = 0;
  uint64_t kind = 0;
};

struct StampParams {
  uint64_t* count = nullptr;  // of stamps so far, also of those beyond the capacity
  Stamp* stamps = nullptr;    // [capacity], in the order of the stream
  uint64_t capacity = 0;
  uint64_t kind = 0;
};

runtime::Error LaunchStamp(runtime::Runtime& runtime, runtime::StreamId stream,
                           const StampParams& params);

}  // namespace quire::kernels::cuda::test
