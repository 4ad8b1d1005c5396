#include "worker/adapters/adapter_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/adapters/peft_adapter.h"
#include "worker/load/model_roots.h"

namespace quire {
namespace {

constexpr int64_t kMostHeaderBytes = int64_t{32} << 20;  // of names and shapes
constexpr int64_t kWidestBytes = 4;                      // of a number

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool LeadsUp(std::string_view path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin) == "..") return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

absl::StatusOr<AdapterPlace> PlaceInRoot(const std::string& root, const std::string& path) {
  const std::string base = WithoutSlashes(root);
  const std::string below = base == "/" ? base : absl::StrCat(base, "/");
  const std::string folder =
      WithoutSlashes(path.starts_with('/') ? path : absl::StrCat(below, path));
  const bool inside = folder.starts_with(below) && folder.size() > below.size();
  if (inside && !LeadsUp(path) && path.find('\0') == path.npos) return AdapterPlace{folder, base};
  return InvalidArgument("must lie in " + base + ", the folder of --lora-dir");
}

std::string FolderFingerprint(const std::string& folder) {
  std::string text;
  for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"}) {
    struct stat info {};
    if (stat(absl::StrCat(folder, file).c_str(), &info) != 0) return "";
    const auto time = [](const timespec& at) { return absl::StrCat(at.tv_sec, ".", at.tv_nsec); };
    absl::StrAppend(&text, info.st_dev, ":", info.st_ino, ":", info.st_size, ":",
                    time(info.st_mtim), ":", time(info.st_ctim), ";");
  }
  return text;
}

int64_t AdapterReader::MostFileBytes() const {
  int64_t numbers = 0;
  for (const kernels::LoraTarget& target : targets_) {
    numbers += (target.rows + target.cols) * max_rank_;
  }
  return numbers * kWidestBytes + kMostHeaderBytes;
}

absl::StatusOr<AdapterContent> AdapterReader::Read(const AdapterPlace& place,
                                                   std::span<const std::string> held) const {
  struct stat info {};
  if (stat(place.folder.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat("no adapter is found at ", place.folder));
  }
  QUIRE_ASSIGN_OR_RETURN(
      const load::ModelRoots roots,
      load::ModelRoots::Of(place.root.empty() ? place.folder : place.root, allowed_roots_));
  QUIRE_ASSIGN_OR_RETURN(const auto adapter,
                         PeftAdapter::Open(place.folder, {roots, max_rank_, MostFileBytes()}));
  AdapterContent content{adapter->digest(), adapter->rank(), 0, nullptr};
  if (std::ranges::find(held, content.digest) != held.end()) return content;
  QUIRE_ASSIGN_OR_RETURN(content.weights, pack_(*adapter));
  content.bytes = content.weights->Bytes();
  return content;
}

}  // namespace quire
