// An emulated device that the tag model runs on, and what its kernels find there beside their
// operands.
//
// Owned by the backend of a CudaTagProgram; its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire::test {

// What is told of the slots of a step, in device memory.
struct TagSlot {
  uint64_t salt = 0;
  uint64_t fails = 0;  // 1: its tokens get NaN logits
};

// Where tags lie: in the values of pages, the one head of each token.
struct TagPages {
  const std::byte* values = nullptr;
  int64_t page_bytes = 0;
  int64_t token_bytes = 0;
};

class TagRuntime final : public kernels::cuda::emulate::EmulatedRuntime {
 public:
  using EmulatedRuntime::EmulatedRuntime;

  Error CreateStream(StreamId* made) override {
    Error error = EmulatedRuntime::CreateStream(made);
    if (!stream.has_value()) stream = *made;
    return error;
  }
  Error Launch(StreamId to, const kernels::cuda::runtime::KernelHandle& kernel,
               const kernels::cuda::runtime::LaunchShape& shape) override {
    return broken ? kBroken : EmulatedRuntime::Launch(to, kernel, shape);
  }
  Error LaunchGraph(GraphId graph, StreamId to) override {
    return broken ? kBroken : EmulatedRuntime::LaunchGraph(graph, to);
  }
  Error Record(EventId event, StreamId of) override {
    return broken ? kBroken : EmulatedRuntime::Record(event, of);
  }

  static constexpr const char* kBroken = "the device says no";
  bool broken = false;             // launches and events fail
  std::optional<StreamId> stream;  // the first one: that of steps
  TagSlot* slots = nullptr;        // by slot, and one of nobody
  uint64_t* fault = nullptr;       // not zero: a key was read that nobody wrote
  TagPages pages;                  // told by the launch of the first attention
  uint16_t* seen = nullptr;        // … the digits of what each token of the step has seen
  int first_state_group = 0;       // groups of states are behind those of keys
};

}  // namespace quire::test
