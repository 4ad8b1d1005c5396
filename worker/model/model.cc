#include "worker/model/model.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

namespace {

// What tensors of one type a file holds.
struct TypeCount {
  std::string name;
  int64_t matrices = 0;
  int64_t matrix_bytes = 0;
  int64_t vector_bytes = 0;
};

// "GGUF: Q4_K 168 matrices (… bytes), F32 vectors (… bytes)", most bytes first.
std::string GgufTypesText(const load::TensorTable& tensors) {
  std::map<std::string, TypeCount> by_name;
  for (const auto& [name, tensor] : tensors.all()) {
    TypeCount& count = by_name[tensor.type_name];
    count.name = tensor.type_name;
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    if (tensor.shape.size() < 2) {
      count.vector_bytes += bytes;
      continue;
    }
    int64_t matrices = 1;  // of experts, one tensor holds all
    for (size_t i = 0; i + 2 < tensor.shape.size(); ++i) matrices *= tensor.shape[i];
    count.matrices += matrices;
    count.matrix_bytes += bytes;
  }
  std::vector<TypeCount> counts;
  for (const auto& [name, count] : by_name) counts.push_back(count);
  std::ranges::stable_sort(counts, std::ranges::greater(), [](const TypeCount& count) {
    return count.matrix_bytes + count.vector_bytes;
  });
  std::vector<std::string> parts;
  for (const TypeCount& count : counts) {
    if (count.matrices > 0) {
      parts.push_back(absl::StrCat(count.name, " ", count.matrices,
                                   count.matrices == 1 ? " matrix (" : " matrices (",
                                   count.matrix_bytes, " bytes)"));
    }
    if (count.vector_bytes > 0) {
      parts.push_back(absl::StrCat(count.name, " vectors (", count.vector_bytes, " bytes)"));
    }
  }
  return absl::StrCat("GGUF: ", absl::StrJoin(parts, ", "));
}

}  // namespace

std::string QuantisationText(const Model& model, const std::string& rounded) {
  if (model.files->is_gguf()) return GgufTypesText(model.files->tensors());
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

// INVALID_ARGUMENT names a layer that cannot be left out.
absl::Status SkipLayers(const std::vector<int>& layers, load::ModelConfig& config) {
  if (layers.empty()) return absl::OkStatus();
  for (const int layer : layers) {
    if (layer >= 0 && layer < config.layers) continue;
    return InvalidArgument(absl::StrCat("layer ", layer, " is not there; the model has ",
                                        config.layers, ", from 0 on"));
  }
  config.skipped_layers = layers;
  int left = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    left += config.Skips(layer) ? 0 : 1;
    if (config.KeysOf(layer) == layer) continue;
    return InvalidArgument(absl::StrCat("layer ", layer, " reads the keys of layer ",
                                        config.KeysOf(layer),
                                        ": layers of such a model cannot be skipped"));
  }
  return left > 0 ? absl::OkStatus() : InvalidArgument("no layer would be left");
}

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
  QUIRE_RETURN_IF_ERROR(SkipLayers(options.skipped_layers, model->config));
  // Checkpoints for images and text say in two places whether they tie the head, not always the
  // same.
  if (!files.is_gguf() && json::Find(files.config(), "text_config") != nullptr) {
    model->config.tied_embeddings = !HasHead(model->family->tensors, files);
  }
  Rank rank = options.rank;
  if (options.features) rank.features = options.features(model->config);
  QUIRE_ASSIGN_OR_RETURN(model->program, BuildProgram(*model->family, model->config, *model->files,
                                                      *model->memory, rank));
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
