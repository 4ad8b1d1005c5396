// Which layers of an artifact make up a model, and the file that each is.
#include <algorithm>
#include <array>
#include <set>

#include "cli/pull/hub.h"
#include "cli/pull/oci.h"
#include "common/ascii.h"

namespace quire::pull {
namespace {

// What Quire does with a kind of layer.
enum class Use { kFile, kArchive, kUnused, kRefused };

struct LayerKind {
  std::string_view media_type;
  Use use;
  std::string_view text;  // the file's name where the layer has none; else what people read
};
constexpr LayerKind kLayerKinds[] = {
    {"application/vnd.ollama.image.model", Use::kFile, "model.gguf"},
    {"application/vnd.ollama.image.license", Use::kFile, "LICENSE"},
    {"application/vnd.ollama.image.template", Use::kUnused,
     "its template, which is Go's (the chat template in its GGUF file is used, or "
     "--chat-template)"},
    {"application/vnd.ollama.image.system", Use::kUnused,
     "its system text (a request may send one)"},
    {"application/vnd.ollama.image.params", Use::kUnused,
     "its sampling settings (a request may send them)"},
    {"application/vnd.ollama.image.messages", Use::kUnused, "its example messages"},
    {"application/vnd.ollama.image.projector", Use::kUnused, "its projector of pictures"},
    {"application/vnd.ollama.image.adapter", Use::kRefused,
     "a LoRA adapter as a layer, without which the model answers otherwise; serve its base model "
     "and the adapter as a folder of PEFT with --lora-modules"},
    {"application/vnd.docker.ai.gguf.v3", Use::kFile, "model.gguf"},
    {"application/vnd.docker.ai.safetensors", Use::kFile, "model.safetensors"},
    {"application/vnd.docker.ai.license", Use::kFile, "LICENSE"},
    {"application/vnd.docker.ai.chat.template.jinja", Use::kFile, "chat_template.jinja"},
    {"application/vnd.docker.ai.vllm.config.tar", Use::kArchive, ""},
    {"application/vnd.docker.ai.mmproj", Use::kUnused, "its projector of pictures"},
    {"application/vnd.oci.empty.v1+json", Use::kUnused, ""},
};
constexpr std::string_view kModelPacks[] = {"application/vnd.cncf.model.",
                                            "application/vnd.cnai.model."};

// The part of ModelPack's media types that says what a layer is: "weight.v1.raw".
std::string_view ModelPackKind(std::string_view media_type) {
  for (const std::string_view prefix : kModelPacks) {
    if (media_type.starts_with(prefix)) return media_type.substr(prefix.size());
  }
  return {};
}

bool IsContainerImage(const OciManifest& manifest) {
  return std::any_of(manifest.layers.begin(), manifest.layers.end(), [](const OciLayer& layer) {
    return layer.path.empty() &&
           (layer.media_type.starts_with("application/vnd.oci.image.layer.") ||
            layer.media_type.starts_with("application/vnd.docker.image.rootfs."));
  });
}

std::string Plainly(std::string_view text) {
  std::string shown(text.substr(0, 120));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

class Planner {
 public:
  Planner(const OciManifest& manifest, const Source& source)
      : manifest_(manifest), source_(source) {}

  absl::StatusOr<OciPlan> Run() {
    for (const OciLayer& layer : manifest_.layers) QUIRE_RETURN_IF_ERROR(Add(layer));
    if (plan_.pieces.empty() && IsContainerImage(manifest_)) {
      return Lacking(
          "is a container image, no model; Quire's chart runs a model in an image "
          "(model.source.type)");
    }
    const bool has_archive = std::any_of(plan_.pieces.begin(), plan_.pieces.end(),
                                         [](const OciPiece& piece) { return piece.path.empty(); });
    if (!has_archive) QUIRE_RETURN_IF_ERROR(KeepTheModels());
    return std::move(plan_);
  }

 private:
  absl::Status Lacking(const std::string& what) const {
    return absl::NotFoundError(AbslView(source_.text + ": " + what));
  }

  absl::Status Add(const OciLayer& layer) {
    if (const std::string_view kind = ModelPackKind(layer.media_type); !kind.empty()) {
      return AddModelPack(layer, kind);
    }
    for (const LayerKind& kind : kLayerKinds) {
      if (kind.media_type != layer.media_type) continue;
      const std::string text(kind.text);
      if (kind.use == Use::kRefused) return InvalidArgument(source_.text + ": has " + text);
      if (kind.use == Use::kArchive) return AddArchive(layer);
      if (kind.use == Use::kFile) return AddFile(layer, layer.path.empty() ? text : layer.path);
      const bool is_new =
          std::find(plan_.unused.begin(), plan_.unused.end(), text) == plan_.unused.end();
      if (!text.empty() && is_new) plan_.unused.push_back(text);
      return absl::OkStatus();
    }
    // A file that ORAS pushed; layers of images have no title.
    return layer.path.empty() ? absl::OkStatus() : AddFile(layer, layer.path);
  }

  absl::Status AddModelPack(const OciLayer& layer, std::string_view kind) {
    const size_t version = kind.find(".v1.");
    if (version == std::string_view::npos) {
      return InvalidArgument(source_.text + ": has a layer of the type '" +
                             Plainly(layer.media_type) + "', which is none of ModelPack's");
    }
    const std::string_view what = kind.substr(0, version), format = kind.substr(version + 4);
    const bool of_model = what == "weight" || what == "weight.config";
    if (!of_model && what != "doc") return absl::OkStatus();  // code and data sets
    if (format == "raw") return AddFile(layer, layer.path);
    if (!of_model) return absl::OkStatus();
    if (format == "tar" || format == "tar+gzip") return AddArchive(layer);
    return InvalidArgument(source_.text + ": has a layer packed as '" + Plainly(format) +
                           "'; Quire reads raw, tar and tar+gzip");
  }

  absl::Status AddArchive(const OciLayer& layer) {
    const bool is_new =
        std::none_of(plan_.pieces.begin(), plan_.pieces.end(), [&](const OciPiece& piece) {
          return piece.path.empty() && piece.layer.digest == layer.digest;
        });
    if (is_new) plan_.pieces.push_back({layer, ""});
    return absl::OkStatus();
  }

  absl::Status AddFile(const OciLayer& layer, const std::string& path) {
    QUIRE_RETURN_IF_ERROR(Annotate(CheckFileName(path), source_.text));
    if (!IsWeight(path) && !IsSetting(path)) {
      pickled_ = pickled_ || path.ends_with(".bin") || path.ends_with(".pt");
      return absl::OkStatus();
    }
    if (!paths_.insert(path).second) {
      if (path == "LICENSE") return absl::OkStatus();  // Ollama's models may have several
      return InvalidArgument(source_.text + ": has two files of the name " + path);
    }
    plan_.pieces.push_back({layer, path});
    return absl::OkStatus();
  }

  // Of files alone it is known before they are fetched which of them make up the model.
  absl::Status KeepTheModels() {
    HubSnapshot snapshot;
    size_t gguf = 0;
    for (const OciPiece& piece : plan_.pieces) {
      snapshot.files.push_back(
          {piece.path, piece.layer.size, DigestKind::kSha256, piece.layer.digest});
      gguf += EndsWithIgnoringCase(piece.path, ".gguf") ? 1 : 0;
    }
    Source whole = source_;
    whole.file.clear();
    const absl::StatusOr<std::vector<HubFile>> chosen = ChooseFiles(snapshot, whole);
    if (!chosen.ok() && gguf > 1) {
      return Lacking(
          "has several .gguf files, and its name means all of it; push the one that "
          "you want as an artifact of its own");
    }
    if (!chosen.ok() && pickled_) {
      return Lacking("has pickled weights, which are never read, and no others");
    }
    if (!chosen.ok()) return chosen.status();
    std::set<std::string> kept;
    for (const HubFile& file : *chosen) kept.insert(file.path);
    if (paths_.count("chat_template.jinja") > 0 && kept.count("chat_template.jinja") == 0) {
      plan_.unused.emplace_back(
          "its chat template (the one in its GGUF file is used, or --chat-template)");
    }
    std::erase_if(plan_.pieces, [&](const OciPiece& piece) {
      return kept.count(piece.path) == 0 && piece.path != "LICENSE";
    });
    return absl::OkStatus();
  }

  const OciManifest& manifest_;
  const Source& source_;
  OciPlan plan_;
  std::set<std::string> paths_;
  bool pickled_ = false;
};

}  // namespace

absl::StatusOr<OciPlan> PlanPieces(const OciManifest& manifest, const Source& source) {
  return Planner(manifest, source).Run();
}

}  // namespace quire::pull
