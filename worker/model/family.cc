#include "worker/model/family.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"

namespace quire::model {

// The families that are served, one line for each.
#define QUIRE_FAMILIES(SERVE) \
  SERVE(kLlama)               \
  SERVE(kMistral)             \
  SERVE(kQwen2)               \
  SERVE(kQwen3)               \
  SERVE(kGemma3)              \
  SERVE(kOpt)

#define QUIRE_DECLARE_FAMILY(constant) extern const Family constant;
QUIRE_FAMILIES(QUIRE_DECLARE_FAMILY)
#undef QUIRE_DECLARE_FAMILY

Families ServedFamilies() {
#define QUIRE_LIST_FAMILY(constant) &constant,
  static constexpr const Family* kServed[] = {QUIRE_FAMILIES(QUIRE_LIST_FAMILY)};
#undef QUIRE_LIST_FAMILY
  return kServed;
}

absl::StatusOr<load::ModelConfig> ReadModelConfig(const load::ModelFiles& files,
                                                  Families families) {
  if (files.is_gguf()) return ModelConfigFromGguf(files.gguf(), files.path(), families);
  return ModelConfigFromJson(files.config(), files.path() + "/config.json", families);
}

absl::StatusOr<load::ModelConfig> ModelConfigFromJson(const json::Object& config,
                                                      const std::string& path, Families families) {
  QUIRE_ASSIGN_OR_RETURN(const std::string name, JsonArchitecture(config, path));
  std::vector<absl::string_view> served;
  for (const Family* family : families) {
    if (family->json.IsCalled(name)) return ReadJson(family->json, family->name, config, path);
    served.push_back(AbslView(family->title));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": architecture \"", name,
                                                 "\" is not served; served are ",
                                                 absl::StrJoin(served, ", ")));
}

absl::StatusOr<load::ModelConfig> ModelConfigFromGguf(const load::GgufFile& file,
                                                      const std::string& path, Families families) {
  QUIRE_ASSIGN_OR_RETURN(std::string_view name, file.String("general.architecture"));
  std::vector<absl::string_view> served;
  for (const Family* family : families) {
    if (family->gguf.architecture.empty()) continue;
    if (family->gguf.architecture == name) {
      return ReadGguf(family->gguf, family->name, file, path);
    }
    served.push_back(AbslView(family->gguf.architecture));
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": general.architecture \"", AbslView(name),
                                                 "\" is not served; served in GGUF are ",
                                                 absl::StrJoin(served, ", ")));
}

const Family& FamilyOf(const load::ModelConfig& config, Families families) {
  const auto found =
      std::find_if(families.begin(), families.end(),
                   [&config](const Family* family) { return family->name == config.family; });
  QUIRE_CHECK_MSG(found != families.end(), "a configuration comes with the table that read it");
  return **found;
}

absl::StatusOr<kernels::StepProgram> BuildProgram(const Family& family,
                                                  const load::ModelConfig& config,
                                                  const load::ModelFiles& files,
                                                  WeightMemory& memory, const Rank& rank) {
  QUIRE_ASSIGN_OR_RETURN(const Shard shard, CutModel(family.tensors, config, files, rank));
  ProgramBuilder builder(family.tensors, config, files, memory, shard);
  family.write(builder, family.decoder);
  return builder.Finish();
}

}  // namespace quire::model
