// How much memory a program needs on the device beside its weights and pages.
//
// Pure: the same for planning and for loading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/backend/lowering.h"
#include "kernels/cuda/backend/step_inputs.h"

namespace quire::kernels::cuda {

struct Workspace {
  std::vector<int64_t> buffer_bytes;  // by device buffer
  std::vector<int64_t> angle_floats;  // by rope
  int64_t input_words = 0;
  size_t product_bytes = 0;
  size_t product_counters = 0;
  size_t attention_bytes = 0;
  size_t attention_counters = 0;
  size_t moe_bytes = 0;  // of mixtures, one at a time
  size_t moe_counters = 0;
  int64_t adapter_bytes = 0;     // what A of adapters makes, of one product at a time
  int64_t head_table_bytes = 0;  // places of the weights of heads
  int64_t sample_bytes = 0;
  int64_t output_bytes = 0;   // of samples
  int64_t state_words = 0;    // of slots: block tables and last samples
  int64_t spare_bytes = 0;    // pages behind the pool's, for padding
  int64_t slice_bytes = 0;    // with several ranks: what is kept of rows between rounds
  int64_t message_bytes = 0;  // … of a rank's messages of a round
  int64_t heard_bytes = 0;    // … of all ranks'
  int64_t shared_bytes = 0;   // of the host: what ranks sum
  int64_t Bytes() const;      // of the device
};
Workspace PlanWorkspace(const StepProgram& program, const DeviceProgram& lowered,
                        const ProgramOptions& options);
// How a program's rows are cut.
StepRules RulesOf(const StepProgram& program, const ProgramOptions& options);

}  // namespace quire::kernels::cuda
