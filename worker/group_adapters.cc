#include "worker/group_adapters.h"

#include <algorithm>
#include <utility>

#include "worker/adapter_setup.h"
#include "worker/rank_programs.h"

namespace quire {
namespace {

// Beside the slots: one that is being loaded, and one that gives way to it.
constexpr int32_t kEntriesInFlight = 2;
// Ranks that have been lost take some time until they are back.
constexpr int64_t kPackMicros = 60'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<GroupAdapters>> GroupAdapters::Make(const WorkerConfig& config,
                                                                   model::Model& model) {
  if (!HasRankGroup(config)) return nullptr;
  std::unique_ptr<GroupAdapters> adapters(new GroupAdapters());
  adapters->targets_.push_back(model.program.lora_targets);
  for (int rank = 1; rank < config.tensor_parallel_size; ++rank) {
    QUIRE_ASSIGN_OR_RETURN(kernels::StepProgram steps, model.BuildRank(RankOf(config, rank)));
    adapters->targets_.push_back(std::move(steps.lora_targets));
  }
  AdapterArenaShape shape;
  shape.entries = MaxLoras(config) + kEntriesInFlight;
  shape.ranks = config.tensor_parallel_size;
  for (const auto& targets : adapters->targets_) {
    shape.rank_bytes =
        std::max(shape.rank_bytes, AdapterArena::PieceBytes(targets, config.max_lora_rank));
  }
  QUIRE_ASSIGN_OR_RETURN(adapters->arena_, AdapterArena::Create(shape));
  return adapters;
}

int64_t GroupAdapters::BytesOfRank() const {
  return arena_->shape().entries * arena_->shape().rank_bytes;
}

AdapterPack GroupAdapters::Packer() const {
  return [this](const PeftAdapter& adapter) { return Pack(adapter); };
}

absl::StatusOr<std::shared_ptr<const kernels::AdapterWeights>> GroupAdapters::Pack(
    const PeftAdapter& adapter) const {
  std::vector<RankAdapter> cut;  // holds the memory of the parts
  std::vector<kernels::Adapter> parts;
  for (const auto& targets : targets_) {
    QUIRE_ASSIGN_OR_RETURN(RankAdapter part, adapter.For(targets));
    cut.push_back(std::move(part));
    parts.push_back(cut.back().adapter);
  }
  QUIRE_ASSIGN_OR_RETURN(const ArenaPlace place, arena_->Put(parts, kPackMicros));
  return std::make_shared<ArenaAdapter>(arena_, place);
}

}  // namespace quire
