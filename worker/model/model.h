// A model loaded from disk: its configuration, the program that computes it, its text side and its
// identity.
//
// Owned by the worker's main; made on the loading thread, read-only afterwards.
// 1. program's weights point into `files` and `memory`; both live as long as the Model.
// 2. After ReleaseSource a weight's memory must not be read by a backend again.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/text_bundle.h"
#include "kernels/step_program.h"
#include "worker/load/model_files.h"
#include "worker/model/family.h"
#include "worker/model/shard.h"
#include "worker/model/weight_memory.h"

namespace quire::model {

struct LoadOptions {
  // False leaves the bundle empty: for tests on models that have no tokenizer.
  bool with_text = true;
  // The digest under which another rank has read the text, for the same model_id without reading
  // it.
  std::string text_digest = {};
  // The chat template in place of the model's own; empty: none.
  std::string chat_template = {};
  // Folders that links in the model may lead to, beside its own (load/model_roots.h).
  std::vector<std::string> allowed_roots = {};
  // The type to which float weights are converted; none keeps them as they are stored.
  std::optional<kernels::DType> float_type = {};
  // The longest context that will be served; 0: the model's. LongRoPE's factors follow from it.
  int64_t max_model_len = 0;
  // Layers that the program leaves out, ascending: a quicker model that is right now and then.
  std::vector<int> skipped_layers = {};
  // Which streams the program shows (Rank::features), of a model with that configuration; empty:
  // none.
  std::function<std::vector<int>(const load::ModelConfig& config)> features = nullptr;
  // The rank whose program this is. Identity and text are the same for all ranks.
  Rank rank = {};
  Families families = ServedFamilies();
};

struct Model {
  load::ModelConfig config;
  const Family* family = nullptr;
  kernels::StepProgram program;
  text::TextBundle bundle;
  std::string bundle_bytes;   // as routers fetch them
  std::string bundle_digest;  // SHA-256 of those bytes
  std::string model_id;
  std::unique_ptr<load::ModelFiles> files;
  std::unique_ptr<WeightMemory> memory;

  // The program of another rank, over the same files: for ranks that are threads of one process.
  // Call it before a backend loads any program of this model.
  absl::StatusOr<kernels::StepProgram> BuildRank(const Rank& rank);

  // Call before a backend loads a program: converts weights where a type is requested, and checks
  // quantised ones (WeightMemory::Fill). Those are written here, unless the backend has that done:
  // `writers_only` is its TakesRowWriters.
  absl::Status FillWeights(bool writers_only = false) {
    return memory->Fill([this](const void* data, int64_t bytes) { files->Release(data, bytes); },
                        writers_only);
  }
  // For ProgramOptions::release_source: drops source pages that have been packed.
  void ReleaseSource(const void* data, int64_t bytes) const;
};

// Opens a Hugging Face directory or a GGUF file and builds its step program. Reads only those bytes
// of the weights that model_id needs. NOT_FOUND, INVALID_ARGUMENT, … in one line that names file,
// field or tensor.
absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path,
                                                 const LoadOptions& options = {});

// What a quantised checkpoint is and what becomes of its matrices, or the types that a GGUF file
// holds, for people; empty: it is neither.
// `rounded`: Backend::RoundedActivations.
std::string QuantisationText(const Model& model, const std::string& rounded);

}  // namespace quire::model
