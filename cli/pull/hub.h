// A hub of models by its HTTP API: what a revision is and which files it has, and the cache that
// the hub's own client keeps, which is read and written in its layout.
//
// Pure except for Describe, which asks the hub, and the cache functions, which use files.
// Whatever a hub says is hostile input: sizes, counts and names are bounded and checked before use.
// The layout: models--ORG--REPO/{refs/REVISION, blobs/ETAG, snapshots/COMMIT/PATH → blobs}, and
// .locks beside the repositories.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/pull/digest.h"
#include "cli/pull/http_session.h"
#include "cli/pull/source.h"
#include "common/config/schema.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxFiles = 10'000;  // of a repository
inline constexpr size_t kMaxPages = 64;      // of its list
inline constexpr int64_t kMaxFileBytes = int64_t{1} << 42;
inline constexpr size_t kMaxPulledFiles = 1'000;

struct HubSettings {
  std::string endpoint = "https://huggingface.co";
  std::string token;  // empty: none
  std::string cache;  // the folder of repositories
  bool offline = false;
};
// From HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME
// and HOME, as the hub's own client reads them.
absl::StatusOr<HubSettings> HubSettingsFrom(const config::Environment& environment);

struct HubFile {
  std::string path;
  int64_t size = 0;
  DigestKind digest_kind = DigestKind::kNone;
  std::string digest;  // the ETag of a download, and the name of its blob
};
struct HubSnapshot {
  std::string commit;
  std::vector<HubFile> files;  // all of them
};

// NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE say what to do.
absl::StatusOr<HubSnapshot> Describe(const HubSettings& settings, const Source& source,
                                     HttpSession& session);

// What a model needs of it: the file that the source names, with the rest of a split one refused;
// else safetensors with their settings; else the one GGUF file, or the one of its Q4_K_M.
// NOT_FOUND lists what there is.
absl::StatusOr<std::vector<HubFile>> ChooseFiles(const HubSnapshot& snapshot, const Source& source);

Address FileAddress(const Address& endpoint, const Source& source, const std::string& commit,
                    std::string_view path);

// --- the cache --------------------------------------------------------------------------------

std::string RepoFolder(const HubSettings& settings, const std::string& repo);
std::string BlobPath(const HubSettings& settings, const std::string& repo,
                     const std::string& digest);
// Links the snapshot's file to its blob and makes the folders that are missing.
absl::Status LinkFile(const HubSettings& settings, const Source& source, const std::string& commit,
                      const HubFile& file);
absl::Status WriteRef(const HubSettings& settings, const Source& source, const std::string& commit);

// Where the cache has what the source names, whole; empty: it does not.
std::string CachedPath(const HubSettings& settings, const Source& source);

}  // namespace quire::pull
