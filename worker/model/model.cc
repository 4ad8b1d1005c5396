#include "worker/model/model.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/model_id.h"
#include "worker/load/text/text_files.h"

namespace quire::model {

void Model::ReleaseSource(const void* data, int64_t bytes) const {
  files->Release(data, bytes);
  memory->Release(data, bytes);
}

absl::StatusOr<kernels::StepProgram> Model::BuildRank(const Rank& rank) {
  return BuildProgram(*family, config, *files, *memory, rank);
}

std::string QuantisationText(const Model& model, const std::string& rounded) {
  if (model.files->quantisation() == nullptr) return "";
  const WeightMemory::QuantisedCount& count = model.memory->quantised();
  std::string text = absl::StrCat(model.files->quantisation()->Description(rounded),
                                  "; matrices that stay quantised: ", count.kept);
  if (count.as_float32 > 0) {
    absl::StrAppend(&text, ", that become float32: ", count.as_float32, " (", count.float32_bytes,
                    " bytes)");
  }
  return text;
}

namespace {

// Whether the checkpoint has a head of its own, in floats or quantised.
bool HasHead(const TensorNaming& naming, const load::ModelFiles& files) {
  const auto& all = files.tensors().all();
  for (const std::string& module : ModuleNames(naming, Part::kHead, kNoLayer)) {
    const auto first = all.lower_bound(module + ".");
    if (first != all.end() && absl::StartsWith(first->first, module + ".")) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& path,
                                                 const LoadOptions& options) {
  auto model = std::make_unique<Model>();
  model->memory = std::make_unique<WeightMemory>(options.float_type);
  QUIRE_ASSIGN_OR_RETURN(model->files, load::ModelFiles::Open(path, options.allowed_roots));
  const load::ModelFiles& files = *model->files;
  QUIRE_ASSIGN_OR_RETURN(
      model->config,
      files.is_gguf()
          ? ModelConfigFromGguf(files.gguf(), files.path(), options.families)
          : ModelConfigFromJson(files.config(), files.path() + "/config.json", options.families));
  if (files.quantisation() != nullptr) {
    model->config.quantisation = files.quantisation()->canonical();
  }
  model->family = &FamilyOf(model->config, options.families);
  load::ChooseContext(model->config, options.max_model_len);
  // Checkpoints for images and text say in two places whether they tie the head, not always the
  // same.
  if (!files.is_gguf() && json::Find(files.config(), "text_config") != nullptr) {
    model->config.tied_embeddings = !HasHead(model->family->tensors, files);
  }
  QUIRE_ASSIGN_OR_RETURN(model->program, BuildProgram(*model->family, model->config, *model->files,
                                                      *model->memory, options.rank));
  if (options.with_text) {
    QUIRE_ASSIGN_OR_RETURN(model->bundle,
                           load::LoadTextBundle(*model->files, model->family->gguf.splitting));
    if (!options.chat_template.empty()) {
      model->bundle.chat_templates = {{"default", options.chat_template}};
    }
    absl::StatusOr<std::string> bytes = text::SerializeTextBundle(model->bundle);
    if (!bytes.ok()) return Annotate(bytes.status(), path);
    model->bundle_bytes = *std::move(bytes);
    model->bundle_digest = text::TextBundleDigest(model->bundle_bytes);
  } else {
    model->bundle_digest = options.text_digest;
  }
  model->model_id = load::ModelId(model->config, model->bundle_digest, model->files->tensors());
  return model;
}

}  // namespace quire::model
