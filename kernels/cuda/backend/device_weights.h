// The weights of a program in device memory: bfloat16, whatever their format in the file.
//
// Owned by a CudaProgram; filled while it loads, read-only afterwards. Matrices are [rows, cols],
// rows rounded up to a multiple of 8 with zeros; vectors are one row.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/backend/device_heap.h"
#include "kernels/cuda/backend/lowering.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

struct DeviceWeight {
  uint16_t* data = nullptr;  // null: no step reads it
  int rows = 0;
  int cols = 0;
};

// Shape on the device, without memory.
DeviceWeight PlanWeight(const Weight& weight, const WeightRole& role);
int64_t PlanWeightBytes(const StepProgram& program, const DeviceProgram& lowered);

class DeviceWeights {
 public:
  // Returns when every weight is on the device, or with an error.
  runtime::Error Load(const StepProgram& program, const DeviceProgram& lowered,
                      const ProgramOptions& options, runtime::Runtime& runtime, DeviceHeap& heap);

  // kNoId is the absent weight.
  const DeviceWeight& At(WeightId id) const { return id == kNoId ? absent_ : weights_[id]; }

 private:
  std::vector<DeviceWeight> weights_;
  DeviceWeight absent_;
};

}  // namespace quire::kernels::cuda
