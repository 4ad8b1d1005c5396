#include "cli/pull/library.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cli/pull/file_lock.h"
#include "common/ascii.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

// Entries of a folder, by name; none where it cannot be read.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (entries.size() >= kMaxFiles) break;
    entries.push_back(it->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> FilesBelow(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (files.size() >= kMaxFiles) break;
    std::error_code type_error;
    if (!it->is_directory(type_error) || it->is_symlink(type_error)) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// "models--ORG--REPO"; empty for another name.
std::string RepoOf(const fs::path& folder) {
  const std::string name = folder.filename();
  if (!name.starts_with("models--")) return "";
  const size_t middle = name.find("--", 8);
  if (middle == std::string::npos) return "";
  return name.substr(8, middle - 8) + "/" + name.substr(middle + 2);
}

// Commit → the branches and tags that name it.
std::map<std::string, std::vector<std::string>> RefsOf(const fs::path& repo) {
  std::map<std::string, std::vector<std::string>> refs;
  for (const fs::path& path : FilesBelow(repo / "refs")) {
    std::ifstream file(path);
    std::string commit;
    std::getline(file, commit);
    refs[commit].push_back(path.lexically_relative(repo / "refs").string());
  }
  return refs;
}

// ":REVISION", or nothing for main.
std::string RevisionText(const std::map<std::string, std::vector<std::string>>& refs,
                         const std::string& commit) {
  const auto found = refs.find(commit);
  if (found == refs.end()) return ":" + commit;
  const std::vector<std::string>& names = found->second;
  if (std::find(names.begin(), names.end(), "main") != names.end()) return "";
  return ":" + names.front();
}

void ListSnapshot(const HubSettings& settings, const std::string& repo, const fs::path& snapshot,
                  const std::string& revision, std::vector<CachedModel>& models) {
  const std::string commit = snapshot.filename();
  Source source;
  source.kind = Kind::kHub;
  source.repo = repo;
  source.revision = commit;
  CachedModel folder{"hf:" + repo + revision, snapshot.string(), commit, 0};
  for (const fs::path& path : FilesBelow(snapshot)) {
    const std::string name = path.lexically_relative(snapshot).string();
    std::error_code error;
    if (!fs::is_regular_file(path, error) || !CheckFileName(name).ok()) continue;
    if (EndsWithIgnoringCase(name, ".gguf")) {
      models.push_back({"hf:" + repo + revision + "/" + name, path.string(), commit, SizeOf(path)});
    } else if (IsWeight(name)) {
      folder.bytes += SizeOf(path);
    }
  }
  if (folder.bytes > 0 && CachedPath(settings, source) == snapshot.string()) {
    models.push_back(std::move(folder));
  }
}

}  // namespace

std::vector<CachedModel> ListCache(const HubSettings& settings) {
  std::vector<CachedModel> models;
  for (const fs::path& repo : EntriesOf(settings.cache)) {
    const std::string name = RepoOf(repo);
    if (name.empty()) continue;
    const auto refs = RefsOf(repo);
    for (const fs::path& snapshot : EntriesOf(repo / "snapshots")) {
      if (models.size() >= kMaxLibraryModels) return models;
      ListSnapshot(settings, name, snapshot, RevisionText(refs, snapshot.filename()), models);
    }
  }
  return models;
}

absl::StatusOr<int64_t> RemoveCached(const Source& source, const PullOptions& options) {
  const HubSettings& settings = options.hub;
  const std::string path = CachedPath(settings, source);
  if (path.empty()) {
    return absl::NotFoundError(AbslView(source.text + ": is not in " + settings.cache));
  }
  const fs::path repo = RepoFolder(settings, source.repo);
  const std::string name = repo.filename();
  QUIRE_ASSIGN_OR_RETURN(
      const FileLock lock,
      FileLock::Take(settings.cache + "/.locks/" + name + "/quire.lock", *options.cancelled, [&] {
        options.on_note("a pull of " + source.text + " is under way; waiting");
      }));
  const std::string commit =
      fs::path(path).lexically_relative(repo / "snapshots").begin()->string();
  std::error_code error;
  if (EndsWithIgnoringCase(path, ".gguf")) {
    fs::remove(path, error);
    if (FilesBelow(repo / "snapshots" / commit).empty()) {
      fs::remove_all(repo / "snapshots" / commit, error);
    }
  } else {
    fs::remove_all(path, error);
  }
  std::set<std::string> used;
  for (const fs::path& file : FilesBelow(repo / "snapshots")) {
    used.insert(fs::read_symlink(file, error).filename());
  }
  int64_t freed = 0;
  for (const fs::path& blob : EntriesOf(repo / "blobs")) {
    if (used.count(blob.filename()) != 0) continue;
    freed += SizeOf(blob);
    fs::remove(blob, error);
  }
  if (EntriesOf(repo / "snapshots").empty()) fs::remove_all(repo, error);
  for (const auto& [of, names] : RefsOf(repo)) {
    if (of != commit || fs::exists(repo / "snapshots" / commit, error)) continue;
    for (const std::string& ref : names) fs::remove(repo / "refs" / ref, error);
  }
  return freed;
}

absl::Status CheckCopyName(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= 100 && name.front() != '.' &&
                     name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') ||
                              std::string_view("-_.:").find(c) != std::string_view::npos;
                     });
  if (plain) return absl::OkStatus();
  return InvalidArgument(
      "a model's own name has letters, digits, '-', '_', '.' and ':', as my-model");
}

absl::Status CopyToStore(const std::string& store, const std::string& path,
                         const std::string& name) {
  QUIRE_RETURN_IF_ERROR(CheckCopyName(name));
  const fs::path target = fs::path(store) / name;
  std::error_code error;
  if (fs::exists(target, error)) {
    return absl::AlreadyExistsError(
        AbslView("'" + name + "' is there already; `quire rm " + name + "` takes it away"));
  }
  const fs::path beside = fs::path(store) / ("." + name + ".new");
  fs::remove_all(beside, error);
  fs::create_directories(beside, error);
  const bool is_file = EndsWithIgnoringCase(path, ".gguf");
  const fs::path root = is_file ? fs::path(path).parent_path() : fs::path(path);
  for (const fs::path& file : is_file ? std::vector<fs::path>{path} : FilesBelow(root)) {
    const fs::path to = beside / file.lexically_relative(root);
    fs::create_directories(to.parent_path(), error);
    const fs::path real = fs::canonical(file, error);
    if (!error) fs::create_hard_link(real, to, error);
    if (error) fs::copy_file(real, to, error = {});
    if (error) {
      const std::string what = to.string() + ": " + error.message();
      fs::remove_all(beside, error);
      return absl::UnavailableError(AbslView(what));
    }
  }
  fs::rename(beside, target, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(AbslView(target.string() + ": " + error.message()));
}

absl::StatusOr<int64_t> RemoveFromStore(const std::string& store, const std::string& name) {
  QUIRE_RETURN_IF_ERROR(CheckCopyName(name));
  const fs::path folder = fs::path(store) / name;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(AbslView("'" + name + "' is not in " + store));
  }
  int64_t bytes = 0;
  for (const fs::path& file : FilesBelow(folder)) bytes += SizeOf(file);
  fs::remove_all(folder, error);
  if (error) return absl::UnavailableError(AbslView(folder.string() + ": " + error.message()));
  return bytes;
}

}  // namespace quire::pull
