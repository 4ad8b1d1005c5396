#include "worker/rank_adapters.h"

#include <pthread.h>

#include <utility>

namespace quire {
namespace {

constexpr int64_t kLookAtArenaMicros = 1'000'000;

}  // namespace

RankAdapters::RankAdapters(AdapterArena& arena, const Of& of)
    : arena_(arena), of_(of), packed_(static_cast<size_t>(arena.shape().entries)) {
  thread_ = std::thread([this] { Run(); });
}

RankAdapters::~RankAdapters() {
  stopping_.store(true);
  arena_.WakeRanks();
  thread_.join();
}

std::shared_ptr<const kernels::AdapterWeights> RankAdapters::Pack(const ArenaPlace& place) const {
  const auto adapter = arena_.Read(place.entry, of_.rank, of_.targets, of_.max_lora_rank);
  if (!adapter.ok()) return nullptr;
  auto weights = of_.program.PackAdapter(*adapter);
  return arena_.NumberOf(place.entry) == place.number ? weights : nullptr;
}

void RankAdapters::Run() {
  pthread_setname_np(pthread_self(), "adapters");
  while (!stopping_.load()) {
    const uint32_t seen = arena_.Changes();
    for (int entry = 0; entry < arena_.shape().entries && !stopping_.load(); ++entry) {
      const ArenaPlace place{entry, arena_.NumberOf(entry)};
      const auto at = static_cast<size_t>(entry);
      {
        MutexLock lock(mutex_);
        if (packed_[at].number == place.number) continue;
        packed_[at] = {place.number, nullptr};
      }
      if (place.number == 0) continue;
      auto weights = Pack(place);
      if (weights == nullptr) continue;
      {
        MutexLock lock(mutex_);
        packed_[at].weights = std::move(weights);
      }
      arena_.SetPacked(place, of_.rank);
    }
    arena_.AwaitChange(seen, kLookAtArenaMicros);
  }
}

absl::StatusOr<std::shared_ptr<const kernels::AdapterWeights>> RankAdapters::Take(
    const ArenaPlace& place) {
  {
    MutexLock lock(mutex_);
    Packed& own = packed_[static_cast<size_t>(place.entry)];
    if (own.number == place.number && own.weights != nullptr) return std::move(own.weights);
  }
  auto weights = Pack(place);
  if (weights == nullptr && arena_.NumberOf(place.entry) == place.number) {
    return absl::InternalError("the matrices of an adapter are damaged");
  }
  return weights;
}

}  // namespace quire
