// The adapters of one rank: packed from the memory that it shares with the engine's process, on a
// thread of their own, so that a load stops no step.
//
// Owned by the rank's program, which it uses; Take comes from the rank's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "common/status.h"
#include "common/sync.h"
#include "kernels/backend.h"
#include "worker/ranks/adapter_arena.h"

namespace quire {

class RankAdapters {
 public:
  // What adapters are packed for; all of it outlives the object.
  struct Of {
    const std::vector<kernels::LoraTarget>& targets;
    const kernels::LoadedProgram& program;
    int rank = 0;
    int max_lora_rank = 0;
  };
  // Packs what is in the arena, and what comes.
  RankAdapters(AdapterArena& arena, const Of& of);
  ~RankAdapters();

  // A content for SetAdapter; packs it here where that has not been done. Null: it has given way to
  // another one since the engine named it, which no row uses. INTERNAL: it is damaged.
  absl::StatusOr<std::shared_ptr<const kernels::AdapterWeights>> Take(const ArenaPlace& place);

 private:
  struct Packed {
    uint64_t number = 0;
    std::shared_ptr<const kernels::AdapterWeights> weights;
  };

  void Run();
  // Null: the content is damaged, or another one by now.
  std::shared_ptr<const kernels::AdapterWeights> Pack(const ArenaPlace& place) const;

  AdapterArena& arena_;
  const Of of_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<Packed> packed_ ABSL_GUARDED_BY(mutex_);  // by entry
  std::thread thread_;
};

}  // namespace quire
