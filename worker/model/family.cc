#include "worker/model/family.h"

#include <algorithm>

#include "common/check.h"
#include "common/status.h"

namespace quire::model {

// The families that are served, one line for each.
#define QUIRE_FAMILIES(SERVE) \
  SERVE(kLlama)               \
  SERVE(kMistral)             \
  SERVE(kMistral3)            \
  SERVE(kMixtral)             \
  SERVE(kQwen2)               \
  SERVE(kQwen3)               \
  SERVE(kQwen2Moe)            \
  SERVE(kQwen3Moe)            \
  SERVE(kQwen3Next)           \
  SERVE(kQwen35)              \
  SERVE(kQwen35Moe)           \
  SERVE(kGemma2)              \
  SERVE(kGemma3)              \
  SERVE(kGemma4)              \
  SERVE(kOlmo2)               \
  SERVE(kOlmo3)               \
  SERVE(kOlmoe)               \
  SERVE(kGptOss)              \
  SERVE(kPhi3)                \
  SERVE(kSmolLm3)             \
  SERVE(kGranite)             \
  SERVE(kGraniteMoe)          \
  SERVE(kGlm)                 \
  SERVE(kGraniteHybrid)       \
  SERVE(kNemotronH)           \
  SERVE(kGlm4)                \
  SERVE(kGlm4Moe)             \
  SERVE(kGlm4MoeLite)         \
  SERVE(kDeepSeekV2)          \
  SERVE(kDeepSeekV3)          \
  SERVE(kCohere)              \
  SERVE(kCohere2)             \
  SERVE(kExaone4)             \
  SERVE(kSeedOss)             \
  SERVE(kErnie45)             \
  SERVE(kLfm2)                \
  SERVE(kOpt)

#define QUIRE_DECLARE_FAMILY(constant) extern const Family constant;
QUIRE_FAMILIES(QUIRE_DECLARE_FAMILY)

Families ServedFamilies() {
#define QUIRE_LIST_FAMILY(constant) &constant,
  static constexpr const Family* kServed[] = {QUIRE_FAMILIES(QUIRE_LIST_FAMILY)};
  return kServed;
}

std::string_view WhyNotServed(std::string_view architecture) {
  constexpr std::string_view kWithIndexer[] = {"DeepseekV32ForCausalLM",
                                               "deepseek_v32",
                                               "DeepseekV4ForCausalLM",
                                               "deepseek_v4",
                                               "GlmMoeDsaForCausalLM",
                                               "glm_moe_dsa",
                                               "deepseek32",
                                               "deepseek4",
                                               "glm-dsa"};
  const bool known =
      std::ranges::find(kWithIndexer, architecture) != std::ranges::end(kWithIndexer);
  return known ? ": it has sparse attention with an indexer" : "";
}

const Family& FamilyOf(const load::ModelConfig& config, Families families) {
  const auto found = std::ranges::find(families, config.family, &Family::name);
  QUIRE_CHECK_MSG(found != families.end(), "a configuration comes with the table that read it");
  return **found;
}

absl::StatusOr<kernels::StepProgram> BuildProgram(const Family& family,
                                                  const load::ModelConfig& config,
                                                  const load::ModelFiles& files,
                                                  WeightMemory& memory, const Rank& rank) {
  QUIRE_ASSIGN_OR_RETURN(Shard shard, CutModel(family.tensors, config, files, rank));
  shard.features = rank.features;
  ProgramBuilder builder(family.tensors, config, files, memory, shard);
  if (rank.adapters) builder.ServeAdapters(family.json.interleaved_rope);
  family.write(builder, family.decoder);
  return builder.Finish();
}

}  // namespace quire::model
