// An adapter's matrices as CPU kernels read them: each a packed matrix, all in one piece of memory.
//
// Owned by the loaded programs that have it in a slot; read-only once packed.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/packed_matrix.h"
#include "kernels/lora_ops.h"

namespace quire::kernels::cpu {

struct PackedAdapter final : AdapterWeights {
  struct Product {
    PackedMatrix a;  // no rows: the adapter leaves the target alone
    PackedMatrix b;
    float scale = 1.0f;
  };

  int64_t Bytes() const override { return memory.size(); }

  std::vector<Product> products;  // by target
  Pages memory;
};

// Neighbouring tokens of a step with one adapter.
struct AdapterRun {
  const PackedAdapter* adapter;
  int begin;
  int end;
};

// Any thread. The matrices' ranks are at least 1.
std::shared_ptr<const PackedAdapter> PackAdapter(const Adapter& adapter);

// Bytes of an adapter of this rank in float32 that leaves no target alone: no other of at most this
// rank takes more.
int64_t MostAdapterBytes(const std::vector<LoraTarget>& targets, int rank);

}  // namespace quire::kernels::cpu
