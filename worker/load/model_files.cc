#include "worker/load/model_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/safetensors.h"

namespace quire::load {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kMedusaFile = "medusa_lm_head.safetensors";  // draft heads alone
constexpr const char* kModelOptFile = "hf_quant_config.json";
constexpr const char* kIndexFile = "model.safetensors.index.json";

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

// The only *.gguf of a directory, as it is after storage has fetched a model's folder; empty where
// there is none, or several.
std::string OnlyGguf(const std::string& directory) {
  std::string found;
  std::error_code error;
  size_t seen = 0;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (++seen > kMaxShards) return "";
    if (it->path().extension() != ".gguf") continue;
    if (!found.empty()) return "";
    found = it->path().string();
  }
  return found;
}

// A clone without Git LFS holds a few lines of text in place of every large file.
absl::Status RefuseLfsPointer(std::string_view bytes, const std::string& path) {
  if (!bytes.starts_with("version https://git-lfs.github.com/spec/")) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": is a pointer of Git LFS, not the file itself; fetch it: git lfs pull"));
}

// A shard's name comes from a file: it must stay inside the model's directory.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

absl::StatusOr<json::Object> ParseObject(const std::string& text, const std::string& path,
                                         size_t max_bytes) {
  json::Limits limits;
  limits.max_bytes = max_bytes;
  limits.max_depth = 32;
  limits.pythons_infinity = true;
  absl::StatusOr<json::Value> value = json::Parse(text, limits);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": must hold a JSON object"));
  }
  return std::move(value->as_object());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::Open(
    const std::string& path, const std::vector<std::string>& allowed_roots) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(path,
                                            ": no such model; give a Hugging Face directory "
                                            "(config.json, *.safetensors) or a GGUF file"));
  }
  QUIRE_ASSIGN_OR_RETURN(ModelRoots roots, ModelRoots::Of(path, allowed_roots));
  std::unique_ptr<ModelFiles> files(new ModelFiles(std::move(roots)));
  files->path_ = path;
  QUIRE_RETURN_IF_ERROR(S_ISDIR(info.st_mode) ? files->OpenDirectory() : files->OpenGguf());
  return files;
}

absl::StatusOr<std::unique_ptr<MappedFile>> ModelFiles::MapFile(const std::string& path) const {
  QUIRE_ASSIGN_OR_RETURN(const OpenFile file, roots_.Open(path));
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> map, MappedFile::Map(file, path));
  const std::string_view text(reinterpret_cast<const char*>(map->bytes().data()),
                              map->bytes().size());
  QUIRE_RETURN_IF_ERROR(RefuseLfsPointer(text, path));
  return map;
}

absl::Status ModelFiles::OpenGguf() {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> map, MapFile(path_));
  QUIRE_ASSIGN_OR_RETURN(gguf_, GgufFile::Parse(map->bytes(), path_));
  maps_.push_back(std::move(map));
  return absl::OkStatus();
}

absl::Status ModelFiles::OpenDirectory() {
  QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> config,
                         ReadText("config.json", kMaxConfigBytes));
  if (!config.has_value()) {
    if (std::string gguf = OnlyGguf(path_); !gguf.empty()) {
      path_ = std::move(gguf);
      return OpenGguf();
    }
    return absl::NotFoundError(absl::StrCat(
        path_,
        ": has no config.json and not one GGUF file alone; give a Hugging Face directory "
        "or a GGUF file"));
  }
  QUIRE_ASSIGN_OR_RETURN(
      config_, ParseObject(*config, absl::StrCat(path_, "/config.json"), kMaxConfigBytes));
  QUIRE_RETURN_IF_ERROR(ReadQuantisation());
  QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> index, ReadText(kIndexFile, kMaxIndexBytes));
  if (index.has_value()) {
    QUIRE_ASSIGN_OR_RETURN(
        json::Object object,
        ParseObject(*index, absl::StrCat(path_, "/", kIndexFile), kMaxIndexBytes));
    return OpenShards(object);
  }
  if (!Exists(absl::StrCat(path_, "/", kSingleFile))) {
    if (Exists(absl::StrCat(path_, "/", kMedusaFile))) return AddSafetensors(kMedusaFile);
    return absl::NotFoundError(
        absl::StrCat(path_, ": has neither ", kSingleFile, " nor ", kIndexFile,
                     "; weights in another format, as pytorch_model.bin, must be saved as "
                     "safetensors first (save_pretrained of transformers does)"));
  }
  return AddSafetensors(kSingleFile);
}

// Image-and-text checkpoints have it beside their text_config, others may have it inside; files of
// compressed-tensors once called it compression_config.
absl::Status ModelFiles::ReadQuantisation() {
  const std::string path = absl::StrCat(path_, "/config.json");
  const json::Value* text = json::Find(config_, "text_config");
  const json::Object* const inner =
      text != nullptr && text->is_object() ? &text->as_object() : nullptr;
  for (const json::Object* const object : {static_cast<const json::Object*>(&config_), inner}) {
    if (object == nullptr) continue;
    const json::Value* value = json::Find(*object, "quantization_config");
    if (value == nullptr) value = json::Find(*object, "compression_config");
    if (value == nullptr) continue;
    absl::StatusOr<const json::Object*> config = json::AsObject(*value, "quantization_config");
    if (!config.ok()) return Annotate(config.status(), path);
    QUIRE_ASSIGN_OR_RETURN(quantisation_, Quantisation::Read(**config, path));
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> file, ReadText(kModelOptFile, kMaxConfigBytes));
  if (!file.has_value()) return absl::OkStatus();
  const std::string name = absl::StrCat(path_, "/", kModelOptFile);
  QUIRE_ASSIGN_OR_RETURN(const json::Object object, ParseObject(*file, name, kMaxConfigBytes));
  QUIRE_ASSIGN_OR_RETURN(quantisation_, Quantisation::ReadModelOpt(object, name));
  return absl::OkStatus();
}

absl::Status ModelFiles::OpenShards(const json::Object& index) {
  const std::string path = absl::StrCat(path_, "/", kIndexFile);
  const json::Value* map = json::Find(index, "weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": needs an object \"weight_map\""));
  }
  std::set<std::string> shards;
  for (const auto& member : map->as_object()) {
    const std::string_view tensor(member.key().data(), member.key().size());
    absl::StatusOr<std::string_view> shard = json::AsString(member.value(), tensor);
    if (!shard.ok()) return Annotate(shard.status(), path);
    if (!IsPlainName(*shard)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", AbslView(tensor),
                                                     "\" names the shard \"", AbslView(*shard),
                                                     "\", which is no plain file name"));
    }
    shards.emplace(*shard);
    if (shards.size() > kMaxShards) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": names more than ", kMaxShards, " shards"));
    }
  }
  for (const std::string& shard : shards) {
    if (!Exists(absl::StrCat(path_, "/", shard))) {
      return absl::NotFoundError(
          absl::StrCat(path_, "/", shard, ": the shard is missing, ", kIndexFile, " names it"));
    }
    QUIRE_RETURN_IF_ERROR(AddSafetensors(shard));
  }
  for (const auto& member : map->as_object()) {
    const std::string_view tensor(member.key().data(), member.key().size());
    if (tensors_.Find(tensor) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, "/", AbslView(json::View(member.value().as_string())), ": tensor \"",
                       AbslView(tensor), "\" is missing, ", kIndexFile, " says that it is there"));
    }
  }
  return absl::OkStatus();
}

absl::Status ModelFiles::AddSafetensors(const std::string& name) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> map, MapFile(absl::StrCat(path_, "/", name)));
  QUIRE_RETURN_IF_ERROR(ReadSafetensors(map->bytes(), map->path(), tensors_));
  maps_.push_back(std::move(map));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> ModelFiles::ReadText(std::string_view name,
                                                                size_t max_bytes) const {
  const std::string path = absl::StrCat(path_, "/", AbslView(name));
  if (!Exists(path)) return std::optional<std::string>();
  QUIRE_ASSIGN_OR_RETURN(const OpenFile file, roots_.Open(path));
  std::string text;
  constexpr size_t kPieceBytes = 1 << 16;
  std::string piece(kPieceBytes, '\0');
  ssize_t count = 0;
  while ((count = read(file.fd(), piece.data(), piece.size())) > 0) {
    text.append(piece, 0, static_cast<size_t>(count));
    if (text.size() > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": larger than the ", max_bytes, " bytes that are read"));
    }
  }
  if (count < 0) return absl::FailedPreconditionError(absl::StrCat(path, ": cannot read it"));
  QUIRE_RETURN_IF_ERROR(RefuseLfsPointer(text, path));
  return std::optional<std::string>(std::move(text));
}

void ModelFiles::Release(const void* data, int64_t bytes) const {
  for (const std::unique_ptr<MappedFile>& map : maps_) map->Release(data, bytes);
}

}  // namespace quire::load
