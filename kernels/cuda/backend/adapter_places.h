// Where a device keeps the matrices of adapters: every slot has the same places, for the largest
// rank.
//
// Pure. A slot is one piece of memory, which one copy fills. Smaller ranks, and modules that an
// adapter leaves alone, are zeros. Neighbouring modules of one width are one launch of B. A module
// that begins at no multiple of 8 shares a matrix with those before it, where each has rows and
// columns of its own and all else is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/backend/lowering.h"

namespace quire::kernels::cuda {

// Of one LoraStep. Bytes from the slot's begin; matrices are 16-bit and row-major.
struct AdapterPlaces {
  struct Run {
    int first = 0;   // of the step's slices
    int count = 0;   // matrices, …
    int joined = 1;  // … each of so many slices; above 1 for a single one
    int rows = 0;    // of each, a multiple of 8
    int column = 0;  // of the first, in the step's out
    size_t b = 0;    // [count][rows][joined · rank], times the adapter's scale
  };

  int inner = 0;  // rows of A: a rank's for each slice
  int width = 0;  // columns of A: those of the step's rows
  size_t a = 0;   // [inner][width]
  std::vector<Run> runs;
};

struct AdapterPlan {
  int rank = 0;                      // the largest, rounded up to a multiple of 8
  int inner = 0;                     // the most of any step
  std::vector<AdapterPlaces> steps;  // in the order of the program's LoraSteps
  size_t slot_bytes = 0;
};

// On the device.
struct AdapterSlots {
  AdapterPlan plan;
  std::byte* memory = nullptr;  // [slots][plan.slot_bytes]
  uint16_t* inner = nullptr;    // [tokens][plan.inner] bfloat16: what A makes
  std::vector<bool> held;       // by slot

  // Whether a row may name the slot. −1: it has no adapter; a program without their ops has nothing
  // to add, whatever its rows name.
  bool Holds(int slot) const {
    if (slot < 0 || plan.steps.empty()) return true;
    return static_cast<size_t>(slot) < held.size() && held[static_cast<size_t>(slot)];
  }
};

AdapterPlan PlanAdapters(const DeviceProgram& lowered, int max_rank);

// Fills a slot's memory, all of it. Requires: matrices as the program's targets have them, of ranks
// up to the plan's.
void PackAdapter(const Adapter& adapter, const DeviceProgram& lowered, const AdapterPlan& plan,
                 std::span<std::byte> slot);

}  // namespace quire::kernels::cuda
