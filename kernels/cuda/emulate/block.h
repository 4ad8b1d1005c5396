// The parts of a resident block of the emulated grid: threads, each on a fiber, warps, shadow cells
// of its shared memory.
//
// Owned by the Machine; kept from launch to launch. machine.h lists the invariants.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device/emulated_calls.h"
#include "kernels/cuda/emulate/access_meter.h"
#include "kernels/cuda/emulate/product.h"
#include "kernels/cuda/emulate/shadow.h"

namespace quire::kernels::cuda::emulate {

struct Block;
struct Warp;

struct PendingCopy {
  unsigned char* to;
  const unsigned char* from;
  uint32_t valid;
  uint32_t group;  // the commits before it
  bool moved;
};

// The members that every switch reads are in its first 64 bytes.
struct alignas(64) Thread {
  void* stack_pointer = nullptr;
  Warp* warp = nullptr;
  unsigned char* shared = nullptr;  // its block's
  emulated::Place place;
  uint32_t commits = 0;
  uint16_t fences = 0;
  bool waited = false;  // for the kernels that were launched before
  uint32_t fiber = 0;
  Stamp last_fence;            // mark kNone: none yet
  std::vector<Stamp> carried;  // what it had acquired at that fence
  std::vector<Stamp> seen;     // read by its atomics since its last fence
  std::vector<PendingCopy> copies;

  uint32_t Lane() const { return place.thread % 32; }
};

// What the lanes of a warp wait for together. They put their inputs into the warp before they meet,
// and find their results there afterwards.
using Meeting = void (*)(class Machine& machine, Warp& warp);

struct ShuffledValues {
  std::array<uint64_t, 32> given;
  std::array<uint32_t, 32> from;
  std::array<uint64_t, 32> got;  // stays until all lanes are in the next meeting
};

struct MatrixRows {
  std::array<const unsigned char*, 32> row;
  std::array<uint32_t*, 32> out;
  uint32_t count = 0;
  bool transposed = false;
};

struct Warp {
  Block* block = nullptr;
  Thread* threads = nullptr;  // its 32
  uint32_t ready = 0;         // lanes
  uint32_t met = 0;           // lanes that are in `meeting`
  uint32_t epoch = 0;         // warp barriers passed
  Meeting meeting = nullptr;
  ShuffledValues shuffled;
  MatrixRows matrices;
  ProductTile product;
  AccessMeter banks{&BankCost};
  AccessMeter reads{&SectorCost};
  AccessMeter writes{&SectorCost};
};

struct Block {
  emulated::Index index;
  uint32_t serial = 0;
  uint32_t epoch = 0;    // block barriers passed
  uint32_t waiting = 0;  // threads at the block's barrier
  uint32_t alive = 0;
  bool running = false;
  unsigned char* shared = nullptr;
  std::vector<Cell> cells;
  std::vector<Acquisition> acquisitions;
  std::vector<Warp> warps;
  std::vector<Thread> threads;
};

}  // namespace quire::kernels::cuda::emulate
