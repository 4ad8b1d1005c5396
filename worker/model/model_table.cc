#include "worker/model/model_table.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace quire::model {
namespace {

struct Family {
  std::string_view name;  // ModelConfig::family
  void (*write)(ProgramBuilder& builder);
};

constexpr Family kFamilies[] = {
    {"llama", WriteLlama}, {"mistral", WriteMistral}, {"qwen2", WriteQwen2},
    {"qwen3", WriteQwen3}, {"gemma3", WriteGemma3},   {"opt", WriteOpt},
};

}  // namespace

absl::StatusOr<kernels::StepProgram> BuildProgram(const load::ModelConfig& config,
                                                  const load::ModelFiles& files,
                                                  WeightMemory& memory, const Rank& rank) {
  for (const Family& family : kFamilies) {
    if (family.name != config.family) continue;
    QUIRE_ASSIGN_OR_RETURN(const Shard shard, CutModel(config, files, rank));
    ProgramBuilder builder(config, files, memory, shard);
    family.write(builder);
    return builder.Finish();
  }
  return load::UnknownArchitecture(files.path(), config.family);
}

}  // namespace quire::model
