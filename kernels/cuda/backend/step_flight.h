// The resources of one step in flight: host memory that the device reads or writes until the step
// has ended.
//
// Owned by a CudaProgram; its thread. Invariant: between the launch of a step and the wait for its
// event the host writes only to those parts that the step has not used yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/backend/device_heap.h"
#include "kernels/cuda/backend/step_inputs.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/sampling/sample_row.h"
#include "kernels/step_batch.h"

namespace quire::kernels::cuda {

inline constexpr int kMaxPageCopies = 1024;  // of one launch

// Of all steps, one after another.
struct SampleMemory {
  size_t capacity = 0;  // bytes of rows and their lists
  std::byte* device = nullptr;
  SampleOutput* outputs = nullptr;  // [max_samples]
  std::byte* slices = nullptr;      // with several ranks: kept of rows between rounds
  std::byte* said = nullptr;        // … this rank's messages of a round
  std::byte* heard = nullptr;       // … those of all, one rank after the other
};

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

// What one step runs with. Without a batch it is captured, or run to warm up, and samples nothing.
struct RunningStep {
  const StepBatch* batch = nullptr;
  StepFlight* flight = nullptr;
  std::span<float> logits;
  StepShape shape;
  InputPlaces places{StepShape{}};
  int first_sample = 0;  // of the current slice
  int samples = 0;       // in it
};

}  // namespace quire::kernels::cuda
