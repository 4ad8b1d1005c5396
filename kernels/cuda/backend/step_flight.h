// The resources of one step in flight: host memory that the device reads or writes until the step
// has ended.
//
// Owned by a CudaProgram; its thread. Invariant: between the launch of a step and the wait for its
// event the host writes only to those parts that the step has not used yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/backend/device_heap.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/sampling/sample_row.h"

namespace quire::kernels::cuda {

inline constexpr int kMaxPageCopies = 1024;  // of one launch

struct StepFlight {
  DeviceHeap::Mapped<int32_t> inputs;        // the piece of step_inputs.h
  DeviceHeap::Mapped<std::byte> packed;      // sampled rows and their lists
  DeviceHeap::Mapped<int32_t> page_copies;   // [from, to][kMaxPageCopies]
  DeviceHeap::Mapped<SampleOutput> outputs;  // by sampled row
  runtime::EventId done{};                   // recorded after the whole step
  int samples = 0;
  int64_t wait_micros = 0;   // with several ranks: how long to wait for its end
  bool packed_used = false;  // a launch of this step reads `packed`
  bool copies_used = false;  // … reads `page_copies`
};

}  // namespace quire::kernels::cuda
