// The families that are served: a new one is a new file and one line in model_table.cc.
//
// Pure functions over a ProgramBuilder, each in the file named after its family.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/step_program.h"
#include "worker/load/model_config.h"
#include "worker/load/model_files.h"
#include "worker/model/program_builder.h"

namespace quire::model {

void WriteLlama(ProgramBuilder& builder);
void WriteMistral(ProgramBuilder& builder);
void WriteQwen2(ProgramBuilder& builder);
void WriteQwen3(ProgramBuilder& builder);
void WriteGemma3(ProgramBuilder& builder);
void WriteOpt(ProgramBuilder& builder);

// The step program of a model. Its weights point into `files` and `memory`, which must outlive it.
// INVALID_ARGUMENT names the tensor that is missing or misshapen, with what was got and expected.
// Also when it cannot be cut for so many ranks, with the counts that work.
absl::StatusOr<kernels::StepProgram> BuildProgram(const load::ModelConfig& config,
                                                  const load::ModelFiles& files,
                                                  WeightMemory& memory, const Rank& rank = {});

}  // namespace quire::model
