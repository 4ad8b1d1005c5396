#include "worker/adapters/desired_adapters.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status.h"
#include "worker/load/model_roots.h"

namespace quire {
namespace {

constexpr size_t kMaxShownBytes = 100;

// By name, with the problems of others.
class Collected {
 public:
  void Add(std::string name, std::string path) {
    if (paths_.contains(name)) return Refuse(name, "is there twice");
    if (paths_.size() == kMaxDesiredAdapters) {
      return Refuse(name, absl::StrCat("is one more than the ", kMaxDesiredAdapters,
                                       " adapters that are served"));
    }
    paths_.emplace(std::move(name), std::move(path));
  }
  void Refuse(const std::string& entry, std::string why) {
    problems_.emplace_back(entry.substr(0, kMaxShownBytes), std::move(why));
  }
  DesiredAdapters Take() {
    DesiredAdapters all;
    for (auto& [name, path] : paths_) all.adapters.push_back({name, std::move(path)});
    all.problems = std::move(problems_);
    return all;
  }

 private:
  std::map<std::string, std::string> paths_;
  std::vector<std::pair<std::string, std::string>> problems_;
};

absl::StatusOr<std::string> ReadList(const std::string& dir, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const load::ModelRoots roots, load::ModelRoots::Of(dir, {}));
  QUIRE_ASSIGN_OR_RETURN(const load::OpenFile file, roots.Open(path));
  if (file.size() > static_cast<int64_t>(kMaxDesiredBytes)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": has ", file.size(), " bytes; at most ", kMaxDesiredBytes, " are read"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  if (pread(file.fd(), text.data(), text.size(), 0) != file.size()) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot read all of it"));
  }
  return text;
}

absl::StatusOr<std::string> Text(const json::Object& entry, std::string_view key) {
  const json::Value* value = json::Find(entry, key);
  if (value == nullptr) return InvalidArgument("has no \"" + std::string(key) + "\"");
  QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(*value, key));
  if (text.empty()) return InvalidArgument("has an empty \"" + std::string(key) + "\"");
  return std::string(text);
}

void AddEntry(const json::Value& value, size_t index, Collected& all) {
  const std::string place = absl::StrCat("adapters[", index, "]");
  const json::Object* entry = value.if_object();
  if (entry == nullptr) return all.Refuse(place, "is no object like {\"name\": …, \"path\": …}");
  const absl::StatusOr<std::string> name = Text(*entry, "name");
  if (!name.ok()) return all.Refuse(place, StatusMessage(name.status()));
  const absl::StatusOr<std::string> path = Text(*entry, "path");
  if (!path.ok()) return all.Refuse(*name, StatusMessage(path.status()));
  all.Add(*name, *path);
}

absl::StatusOr<DesiredAdapters> FromFolders(const std::string& dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(dir.c_str()), closedir);
  if (open == nullptr) {
    return absl::NotFoundError(absl::StrCat(dir, ": cannot list it: ", std::strerror(errno)));
  }
  std::vector<std::string> names;
  for (const dirent* entry = readdir(open.get()); entry != nullptr; entry = readdir(open.get())) {
    if (entry->d_name[0] == '.') continue;  // what a volume keeps for itself
    names.emplace_back(entry->d_name);
    if (names.size() <= kMaxDesiredEntries) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        dir, ": has more than the ", kMaxDesiredEntries, " entries that are looked at"));
  }
  std::ranges::sort(names);
  Collected all;
  for (const std::string& name : names) {
    struct stat info {};
    const std::string config = absl::StrCat(dir, "/", name, "/adapter_config.json");
    if (stat(config.c_str(), &info) == 0) all.Add(name, name);
  }
  return all.Take();
}

}  // namespace

absl::StatusOr<DesiredAdapters> ParseDesiredAdapters(std::string_view text,
                                                     const std::string& path) {
  const absl::StatusOr<json::Value> parsed =
      json::Parse(text, {.max_bytes = kMaxDesiredBytes, .max_depth = 8});
  if (!parsed.ok()) return Annotate(parsed.status(), path);
  const json::Object* object = parsed->if_object();
  const json::Value* list = object == nullptr ? nullptr : json::Find(*object, "adapters");
  const json::Array* entries = list == nullptr ? nullptr : list->if_array();
  if (entries == nullptr) {
    return InvalidArgument(path +
                           R"(: must be like {"adapters": [{"name": "sql", "path": "sql"}]})");
  }
  if (entries->size() > kMaxDesiredEntries) {
    return InvalidArgument(absl::StrCat(path, ": has ", entries->size(), " entries; at most ",
                                        kMaxDesiredEntries, " are read"));
  }
  Collected all;
  for (size_t i = 0; i < entries->size(); ++i) AddEntry((*entries)[i], i, all);
  return all.Take();
}

absl::StatusOr<DesiredAdapters> ReadDesiredAdapters(const std::string& dir) {
  const std::string list = absl::StrCat(dir, "/", kDesiredFile);
  struct stat info {};
  // A link to nothing is a list that is being exchanged, not a folder without one.
  if (lstat(list.c_str(), &info) != 0) return FromFolders(dir);
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadList(dir, list));
  return ParseDesiredAdapters(text, list);
}

}  // namespace quire
