#include "cli/model_names.h"

#include <algorithm>
#include <filesystem>
#include <map>

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxEntries = 10'000;  // of one folder; further ones are skipped

// The weights below `folder`: safetensors or GGUF files, not deeper.
struct Content {
  bool has_config = false;
  std::vector<fs::path> gguf_files;
  int64_t weight_bytes = 0;
};

Content Look(const fs::path& folder) {
  Content content;
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (++count > kMaxEntries) break;
    const std::string extension = it->path().extension();
    if (it->path().filename() == "config.json") content.has_config = true;
    if (extension == ".gguf") content.gguf_files.push_back(it->path());
    if (extension == ".gguf" || extension == ".safetensors") {
      std::error_code size_error;
      const auto size = it->file_size(size_error);
      if (!size_error) content.weight_bytes += static_cast<int64_t>(size);
    }
  }
  return content;
}

}  // namespace

std::vector<std::string> ModelFolders(const std::string& executable) {
  const fs::path bin = fs::path(executable).parent_path();
  return {
      (bin / "../../models").lexically_normal().string(),
      (bin / "../../.cache/models").lexically_normal().string(),
      (bin / "../share/quire/models").lexically_normal().string(),
  };
}

std::vector<NamedModel> ListModels(const std::vector<std::string>& folders) {
  std::map<std::string, NamedModel> by_name;
  for (const std::string& folder : folders) {
    std::error_code error;
    int count = 0;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (++count > kMaxEntries) break;
      std::error_code type_error;
      if (!it->is_directory(type_error)) continue;
      const Content content = Look(it->path());
      if (content.weight_bytes == 0) continue;
      if (!content.has_config && content.gguf_files.size() != 1) continue;
      const std::string name = it->path().filename();
      const fs::path path = content.has_config ? it->path() : content.gguf_files.front();
      by_name.emplace(name, NamedModel{name, path.string(), content.weight_bytes});
    }
  }
  std::vector<NamedModel> models;
  for (auto& [name, model] : by_name) models.push_back(std::move(model));
  return models;
}

absl::StatusOr<ResolvedModel> ResolveModel(const std::string& model,
                                           const std::vector<std::string>& folders) {
  const std::vector<NamedModel> models = ListModels(folders);
  for (const NamedModel& known : models) {
    if (known.name == model) return ResolvedModel{known.path, known.name};
  }
  std::error_code error;
  if (fs::exists(model, error)) {
    fs::path path = fs::absolute(model, error).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    const bool gguf = path.extension() == ".gguf";
    return ResolvedModel{path.string(), gguf ? path.stem().string() : path.filename().string()};
  }
  std::string names;
  for (const NamedModel& known : models) names += (names.empty() ? "" : ", ") + known.name;
  return absl::NotFoundError(AbslView(
      "MODEL: '" + model + "' is neither a folder, a .gguf file nor a known name; known: " +
      (names.empty() ? "none (./dev model NAME fetches one)" : names)));
}

}  // namespace quire::cli
