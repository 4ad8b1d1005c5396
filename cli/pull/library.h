// The models of the hub's cache and of the store on this machine: lists, removes and copies them.
//
// Blocking, on the calling thread. Folders may hold anything: counts are bounded, links are
// followed no further than the cache lays them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pull/pull.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxLibraryModels = 10'000;

struct CachedModel {
  std::string name;    // as ParseSource reads it: "hf:ORG/REPO[:REVISION][/FILE.gguf]"
  std::string path;    // a folder or a .gguf file
  std::string commit;  // in full
  int64_t bytes = 0;
};

// Models of the hub's cache whose weights are whole, by name.
std::vector<CachedModel> ListCache(const HubSettings& settings);

// Takes a model out of the hub's cache, with the blobs that no other snapshot uses. Returns the
// bytes that it frees. NOT_FOUND where it is not there.
absl::StatusOr<int64_t> RemoveCached(const Source& source, const PullOptions& options);

// A name that a copy may have: of letters, digits, '-', '_', '.' and ':'.
absl::Status CheckCopyName(const std::string& name);
// Makes STORE/NEW of the files of the model at `path`, as links to the same bytes where the disk
// allows it. ALREADY_EXISTS for a name that is taken.
absl::Status CopyToStore(const std::string& store, const std::string& path,
                         const std::string& name);
// Takes STORE/NAME away. Returns the bytes of its files.
absl::StatusOr<int64_t> RemoveFromStore(const std::string& store, const std::string& name);

}  // namespace quire::pull
