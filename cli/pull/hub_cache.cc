// The hub's cache on this machine.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/pull/hub.h"
#include "common/ascii.h"
#include "common/json/json.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const fs::path& path, size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

bool IsCommit(std::string_view text) {
  return text.size() == 40 &&
         std::all_of(text.begin(), text.end(), [](char c) { return HexDigit(c) >= 0; });
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// All shards that the index names are there; without one, the single file is.
bool HasWeights(const fs::path& folder) {
  const fs::path index = folder / "model.safetensors.index.json";
  if (!IsFile(index)) return IsFile(folder / "model.safetensors");
  const absl::StatusOr<json::Value> value = json::Parse(TextOf(index, 16u << 20));
  if (!value.ok() || !value->is_object()) return false;
  const json::Value* map = json::Find(value->get_object(), "weight_map");
  if (map == nullptr || !map->is_object() || map->get_object().empty()) return false;
  return std::all_of(map->get_object().begin(), map->get_object().end(), [&](const auto& member) {
    const json::String* name = member.value().if_string();
    return name != nullptr && CheckFileName(json::View(*name)).ok() &&
           IsFile(folder / std::string(json::View(*name)));
  });
}

// The one GGUF file of a snapshot.
std::string OnlyGguf(const fs::path& folder) {
  std::string found;
  std::error_code error;
  size_t count = 0;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (++count > kMaxFiles) break;
    if (!EndsWithIgnoringCase(it->path().string(), ".gguf") || !IsFile(it->path())) continue;
    if (!found.empty()) return "";
    found = it->path().string();
  }
  return found;
}

}  // namespace

std::string RepoFolder(const HubSettings& settings, const std::string& repo) {
  const size_t slash = repo.find('/');
  return settings.cache + "/models--" + repo.substr(0, slash) + "--" + repo.substr(slash + 1);
}

std::string BlobPath(const HubSettings& settings, const std::string& repo,
                     const std::string& digest) {
  return RepoFolder(settings, repo) + "/blobs/" + digest;
}

absl::Status LinkFile(const HubSettings& settings, const Source& source, const std::string& commit,
                      const HubFile& file) {
  const fs::path path =
      fs::path(RepoFolder(settings, source.repo)) / "snapshots" / commit / file.path;
  std::string target = "../../blobs/" + file.digest;
  for (const char c : file.path) {
    if (c == '/') target.insert(0, "../");
  }
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (fs::read_symlink(path, error) == target) return absl::OkStatus();
  const fs::path beside = path.string() + ".quire-link";
  fs::remove(beside, error);
  fs::create_symlink(target, beside, error);
  if (!error) fs::rename(beside, path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(AbslView(path.string() + ": " + error.message()));
}

absl::Status WriteRef(const HubSettings& settings, const Source& source,
                      const std::string& commit) {
  if (source.revision == commit) return absl::OkStatus();
  const fs::path path = fs::path(RepoFolder(settings, source.repo)) / "refs" / source.revision;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path beside = path.string() + ".quire-ref";
  std::ofstream file(beside, std::ios::trunc);
  file << commit;
  file.close();
  if (file.good()) {
    fs::rename(beside, path, error);
    if (!error) return absl::OkStatus();
  }
  return absl::UnavailableError(AbslView(path.string() + ": cannot be written"));
}

std::string CachedPath(const HubSettings& settings, const Source& source) {
  const fs::path repo = RepoFolder(settings, source.repo);
  std::string commit = source.revision;
  if (!IsCommit(commit)) commit = Trim(TextOf(repo / "refs" / source.revision, 64), " \r\n\t");
  if (!IsCommit(commit)) return "";
  const fs::path folder = repo / "snapshots" / commit;
  if (!source.file.empty())
    return IsFile(folder / source.file) ? (folder / source.file).string() : "";
  if (IsFile(folder / "config.json") && HasWeights(folder) &&
      (IsFile(folder / "tokenizer.json") || IsFile(folder / "tokenizer.model"))) {
    return folder.string();
  }
  return OnlyGguf(folder);
}

}  // namespace quire::pull
