// A draft head: a small network that proposes further tokens from the hidden states that its target
// computes. Each kind is one file: medusa_head.cc, eagle_head.cc, mtp_head.cc.
//
// A DraftHead is opened before its target, whose program must show what the head reads, and built
// behind it. Used on the loading thread; its programs live as long as the head and the target.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/step_program.h"
#include "worker/model/model.h"

namespace quire::model {

struct HeadOptions {
  std::string path;  // of its folder; unused where the target's checkpoint holds it
  std::vector<std::string> allowed_roots = {};
  std::optional<kernels::DType> float_type = {};  // as in LoadOptions
  int tokens = 1;                                 // that it will draft at most
};

// What a head computes, for a target of known sizes.
struct HeadPrograms {
  // Medusa: one for each further token. Reads the features, [hidden]; its sample is the token.
  std::vector<kernels::StepProgram> guesses;
  // EAGLE-3 and MTP. `project` reads the features and shows what `layer` reads first, [hidden].
  // `layer` reads that, and behind it the embedding of the next token; it samples the token after
  // that, and shows what it reads for the token after its own sample. `project` embeds tokens where
  // `embeds_itself`, else the target does.
  std::optional<kernels::StepProgram> project;
  std::optional<kernels::StepProgram> layer;
  bool embeds_itself = false;
  // The target's id of each id that a program samples; empty: they are the same.
  std::vector<int32_t> token_map;
};

class DraftHead {
 public:
  virtual ~DraftHead() = default;

  // Rank::features of the target.
  virtual std::vector<int> Features(const load::ModelConfig& target) const = 0;
  // INVALID_ARGUMENT names a tensor that is missing, unknown or of another shape or type, with
  // what was found and what the target demands. `target` outlives the programs.
  virtual absl::StatusOr<HeadPrograms> Build(Model& target) = 0;
  // Call before a backend loads a program: as Model::FillWeights, of the head's own files.
  virtual absl::Status FillWeights() { return absl::OkStatus(); }
  virtual void ReleaseSource(const void* /*data*/, int64_t /*bytes*/) const {}
};

// out = the target's final norm of `in`: what its head reads. INVALID_ARGUMENT for a target that
// computes anything else there.
absl::Status AddFinalNorm(const kernels::StepProgram& target, kernels::BufferId in,
                          kernels::BufferId out, kernels::StepProgram& to);
// The streams of a target whose family shows none; OK where it does.
absl::Status CheckFeatures(const Model& target);

// A program of the target's sizes, without buffers and ops. `vocab_size`: of its samples.
kernels::StepProgram HeadProgram(const kernels::StepProgram& target, const char* family,
                                 int64_t vocab_size);
kernels::BufferId AddBuffer(kernels::StepProgram& program, const char* name, int64_t width,
                            bool sampled_rows_only = false);
// The rows of `in` that sample, their norm where there are weights of one, their logits, and the
// sample.
struct HeadEnd {
  kernels::BufferId in = kernels::kNoId;
  kernels::WeightId norm = kernels::kNoId;
  float epsilon = 1e-6f;
  kernels::WeightId head = kernels::kNoId;
};
void AddHeadEnd(kernels::StepProgram& program, const HeadEnd& end);

// NOT_FOUND, INVALID_ARGUMENT, … in one line that names file or field.
absl::StatusOr<std::unique_ptr<DraftHead>> OpenMedusa(const HeadOptions& options);
absl::StatusOr<std::unique_ptr<DraftHead>> OpenEagle3(const HeadOptions& options);
absl::StatusOr<std::unique_ptr<DraftHead>> OpenMtp(const HeadOptions& options);

}  // namespace quire::model
