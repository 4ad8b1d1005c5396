// The step packet: a step plan as flat, versioned bytes, the only form that runners of any backend
// see.
//
// Little endian, no padding: magic "QSP1", version, plan number, then the plan's lists in order,
// each with its count. Encoding never fails. Decoding trusts nothing: bytes from another process
// may be damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "worker/core/step_plan.h"

namespace quire {

inline constexpr uint32_t kStepPacketVersion = 5;

// The capacity of a runner; a packet that exceeds it is refused.
struct StepLimits {
  int32_t max_rows = 64;         // of the row table
  int32_t max_tokens = 2048;     // computed in one step
  int32_t max_model_len = 2048;  // tokens of one row
  int32_t block_size = 16;
  int32_t groups = 1;
  int64_t page_count = 0;
  int32_t vocab_size = 0;
  int32_t max_loras = 0;  // slots of adapters
};

inline constexpr size_t kMaxStepRows = 4096;  // the largest max_rows

// The most pages that one step appends: a block for each row, and those of its prefill, in each
// group.
size_t MaxAppends(const StepLimits& limits);

// Overwrites `packet`, keeping its memory.
void EncodeStepPlan(const StepPlan& plan, std::vector<std::byte>& packet);

// INVALID_ARGUMENT naming the part that is damaged or exceeds `limits`; `plan` is then unspecified.
// Checks the packet against itself, not against the state of rows.
absl::Status DecodeStepPlan(std::span<const std::byte> packet, const StepLimits& limits,
                            StepPlan& plan);

}  // namespace quire
