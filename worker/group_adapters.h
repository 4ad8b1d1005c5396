// The adapters of a group of ranks, on the engine's side: their shared memory, and how an adapter
// gets into it, cut for each rank.
//
// Owned by the loaded worker.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/status.h"
#include "worker/adapters/adapter_reader.h"
#include "worker/config.h"
#include "worker/model/model.h"
#include "worker/ranks/adapter_arena.h"

namespace quire {

class GroupAdapters {
 public:
  // Null without a group of ranks. Requires: the settings serve adapters. `model` has the first
  // rank's program.
  static absl::StatusOr<std::unique_ptr<GroupAdapters>> Make(const WorkerConfig& config,
                                                             model::Model& model);

  const std::shared_ptr<AdapterArena>& arena() const { return arena_; }
  // At most, of one rank.
  int64_t BytesOfRank() const;
  // Of any thread, one at a time; waits until all ranks have packed the adapter. The object
  // outlives it.
  AdapterPack Packer() const;

 private:
  GroupAdapters() = default;
  absl::StatusOr<std::shared_ptr<const kernels::AdapterWeights>> Pack(
      const PeftAdapter& adapter) const;

  std::vector<std::vector<kernels::LoraTarget>> targets_;  // by rank
  std::shared_ptr<AdapterArena> arena_;
};

}  // namespace quire
