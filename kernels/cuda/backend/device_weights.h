// The weights of a program in device memory: quantised matrices as they are, in the order of the
// tensor core's lanes, other matrices in bfloat16 or float16, vectors in float32.
//
// Owned by a CudaProgram; filled while it loads, read-only afterwards. Matrices are [rows, cols],
// both rounded up to a multiple of 8 with zeros; vectors are one row.
//
// Invariants:
// 1. A matrix is cut into parts of one form each, which begin at multiples of 8 rows.
// 2. Inputs are rounded where the program asks for that and the part's file does; else whether a
// part
//    is quantised changes no bit of a product or a look-up: weights become the
//    float32 of their format, rounded once to the type that they are multiplied in, here or in
//    registers.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/backend/device_heap.h"
#include "kernels/cuda/backend/lowering.h"
#include "kernels/cuda/ops/gemm/quantised.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

// Rows of one form, one below another.
struct DeviceWeightPart {
  int first_row = 0;
  int rows = 0;
  bool is_vector = false;
  uint16_t* data = nullptr;     // of a matrix: [rows, cols], where quantised.bits is 0
  QuantisedWeight quantised;    // with data
  ActivationRounding rounding;  // of its inputs, where quantised.form is one of codes by codes
  float* floats = nullptr;      // of a vector
  // The sources of the weight that it is made from.
  size_t first_source = 0;
  size_t source_count = 0;

  size_t Bytes(int cols) const;
};

struct DeviceWeight {
  int rows = 0;
  int cols = 0;
  bool half = false;  // matrices are float16 where the products are; otherwise bfloat16
  std::vector<DeviceWeightPart> parts;  // none: no step reads it

  // For a weight with one part: a table, or a vector. Null where it is absent.
  const uint16_t* data() const { return parts.empty() ? nullptr : parts.front().data; }
  const float* floats() const { return parts.empty() ? nullptr : parts.front().floats; }
  QuantisedWeight quantised() const {
    return parts.empty() ? QuantisedWeight() : parts.front().quantised;
  }
};

// Shapes on the device, without memory.
// Why rounded inputs cannot meet a weight; null: they can, or it asks for none.
const char* WhyNotByCodes(const Weight& weight, const WeightRole& role);
DeviceWeight PlanWeight(const Weight& weight, const WeightRole& role);
int64_t PlanWeightBytes(const StepProgram& program, const DeviceProgram& lowered);
WeightForms PlanWeightForms(const StepProgram& program, const DeviceProgram& lowered);

class DeviceWeights {
 public:
  // Returns when every weight is on the device, or with an error. Weights are repacked by several
  // threads into pinned memory, while what was repacked before is copied.
  runtime::Error Load(const StepProgram& program, const DeviceProgram& lowered,
                      const ProgramOptions& options, runtime::Runtime& runtime, DeviceHeap& heap);

  // kNoId is the absent weight.
  const DeviceWeight& At(WeightId id) const { return id == kNoId ? absent_ : weights_[id]; }

 private:
  std::byte* Reserve(const DeviceProgram& lowered, const WeightRole& role, size_t part,
                     size_t bytes, DeviceHeap& heap);
  void JoinStacks(const DeviceProgram& lowered);

  std::vector<DeviceWeight> weights_;
  std::vector<std::vector<std::byte*>> stack_memory_;  // by stack and part
  DeviceWeight absent_;
};

}  // namespace quire::kernels::cuda
