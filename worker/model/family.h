// What Quire knows about a model family: its names, how to read its configuration, its differences
// and its program. Each family is one constant in the file of its name (llama.cc) and one line of
// the table in family.cc; everything that depends on the family derives from that constant.
//
// Constants, and pure functions over them for the loading thread. Invariants of the table:
// 1. A name of `json`, and an architecture of `gguf`, belongs to one family.
// 2. `name` is part of a model's identity: it never changes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/step_program.h"
#include "worker/load/model_config.h"
#include "worker/load/model_files.h"
#include "worker/model/decoder_blocks.h"
#include "worker/model/gguf_config.h"
#include "worker/model/json_config.h"
#include "worker/model/tensor_names.h"

namespace quire::model {

struct Family {
  std::string_view name = "";   // ModelConfig::family
  std::string_view title = "";  // for messages and docs/models.md
  JsonForm json = {};
  GgufForm gguf = {};
  TensorNaming tensors = {};
  DecoderForm decoder = {};
  void (*write)(ProgramBuilder& builder, const DecoderForm& form) = WriteDecoder;
};

using Families = std::span<const Family* const>;
Families ServedFamilies();

// What Quire lacks for an architecture, beginning with a colon; empty where nothing is known of it.
std::string_view WhyNotServed(std::string_view architecture);

// INVALID_ARGUMENT naming file and field, with what is served. An unknown architecture is named
// with the list of served ones. `path` is for messages.
absl::StatusOr<load::ModelConfig> ModelConfigFromJson(const json::Object& config,
                                                      const std::string& path,
                                                      Families families = ServedFamilies());
absl::StatusOr<load::ModelConfig> ModelConfigFromGguf(const load::GgufFile& file,
                                                      const std::string& path,
                                                      Families families = ServedFamilies());

// The family of a configuration that was read with the same table.
const Family& FamilyOf(const load::ModelConfig& config, Families families = ServedFamilies());

// The step program of a model. Its weights point into `files` and `memory`, which must outlive it.
// INVALID_ARGUMENT names the tensor that is missing or has the wrong shape, with the actual and the
// expected one. The same error reports a model that cannot be divided between so many ranks, with
// the counts that work.
absl::StatusOr<kernels::StepProgram> BuildProgram(const Family& family,
                                                  const load::ModelConfig& config,
                                                  const load::ModelFiles& files,
                                                  WeightMemory& memory, const Rank& rank = {});

}  // namespace quire::model
