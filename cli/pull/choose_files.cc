// Which files of a repository make up a model.
#include <algorithm>

#include "cli/pull/hub.h"
#include "common/ascii.h"

namespace quire::pull {
namespace {

constexpr size_t kMostListed = 12;

bool IsInRoot(const HubFile& file) { return file.path.find('/') == std::string::npos; }

// "model-00002-of-00003.gguf".
bool IsSplit(std::string_view name) {
  const size_t of = name.rfind("-of-");
  return of != std::string_view::npos && EndsWithIgnoringCase(name, ".gguf") &&
         name.size() - of == 14;
}

// Mistral's own names for the weights that a repository has in parts as well.
bool IsSecondCopy(std::string_view name) { return name.starts_with("consolidated"); }

std::string ListOf(const std::vector<HubFile>& files) {
  std::string list;
  for (size_t i = 0; i < std::min(files.size(), kMostListed); ++i) {
    list +=
        (i == 0 ? "" : ", ") + files[i].path + " (" + std::to_string(files[i].size >> 20) + " MiB)";
  }
  if (files.size() > kMostListed) {
    list += " and " + std::to_string(files.size() - kMostListed) + " more";
  }
  return list;
}

std::vector<HubFile> OneGguf(const std::vector<HubFile>& all) {
  std::vector<HubFile> chosen = all;
  if (chosen.size() > 1) {
    std::erase_if(chosen, [](const HubFile& file) {
      return file.path.find("Q4_K_M") == std::string::npos &&
             file.path.find("q4_k_m") == std::string::npos;
    });
  }
  return chosen;
}

absl::StatusOr<std::vector<HubFile>> NamedFile(const HubSnapshot& snapshot, const Source& source,
                                               const std::vector<HubFile>& gguf) {
  for (const HubFile& file : snapshot.files) {
    if (file.path != source.file) continue;
    if (IsSplit(file.path)) {
      return absl::NotFoundError(AbslView(BaseOf(source) + ": " + file.path +
                                          " is one part of a split file, which Quire does not "
                                          "read; take one that is whole: " +
                                          ListOf(gguf)));
    }
    return std::vector<HubFile>{file};
  }
  return absl::NotFoundError(AbslView(BaseOf(source) + ": has no file " + source.file +
                                      "; it has " + (gguf.empty() ? "no .gguf" : ListOf(gguf))));
}

}  // namespace

absl::StatusOr<std::vector<HubFile>> ChooseFiles(const HubSnapshot& snapshot,
                                                 const Source& source) {
  std::vector<HubFile> gguf, model;
  bool has_weights = false, has_config = false, has_pickle = false;
  for (const HubFile& file : snapshot.files) {
    if (EndsWithIgnoringCase(file.path, ".gguf") && !IsSplit(file.path)) gguf.push_back(file);
    if (!IsInRoot(file)) continue;
    has_pickle = has_pickle || file.path.ends_with(".bin") || file.path.ends_with(".pt");
    if (IsSecondCopy(file.path) || EndsWithIgnoringCase(file.path, ".gguf")) continue;
    if (!IsWeight(file.path) && !IsSetting(file.path)) continue;
    has_weights = has_weights || IsWeight(file.path);
    has_config = has_config || file.path == "config.json";
    model.push_back(file);
  }
  if (!source.file.empty()) return NamedFile(snapshot, source, gguf);
  const std::string what = BaseOf(source) + ": ";
  if (has_weights && has_config) {
    if (model.size() > kMaxPulledFiles) {
      return absl::ResourceExhaustedError(AbslView(what + "has more than 1,000 files"));
    }
    return model;
  }
  const std::vector<HubFile> one = OneGguf(gguf);
  if (one.size() == 1) return one;
  if (!gguf.empty()) {
    return absl::NotFoundError(AbslView(what + "has several .gguf files; name one, as " +
                                        BaseOf(source) + "/" + gguf.front().path + ": " +
                                        ListOf(gguf)));
  }
  return absl::NotFoundError(AbslView(
      what + "has no model that Quire reads: no .gguf file, and no config.json with .safetensors" +
      (has_pickle ? "; it has pickled weights, which are never read" : "")));
}

}  // namespace quire::pull
