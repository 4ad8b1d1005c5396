// Pulls into the store: models of web servers, of S3 and of registries, each in a folder of its
// own, which notes where it came from once it is whole.
//
// Blocking, on the calling thread. What both kinds of pulls share is here too.
#pragma once

#include <string>

#include "cli/pull/file_lock.h"
#include "cli/pull/pull.h"

namespace quire::pull {

// Where the store has the source, whole; empty: it does not.
std::string StoredPath(const Source& source, const std::string& store);

absl::StatusOr<Pulled> PullFromWeb(const Source& source, const PullOptions& options);
absl::StatusOr<Pulled> PullFromS3(const Source& source, const PullOptions& options);
absl::StatusOr<Pulled> PullFromRegistry(const Source& source, const PullOptions& options);
absl::StatusOr<Pulled> PullFromMlflow(const Source& source, const PullOptions& options);

std::string FolderOf(const Source& source, const std::string& store);
// The folder of the source, for this pull alone. ALREADY_EXISTS where another model has the name.
absl::StatusOr<FileLock> TakeFolder(const Source& source, const PullOptions& options);
// The folder holds the source, whole.
absl::Status NoteSource(const Source& source, const std::string& folder);
// What a worker serves of a folder: the folder with its config.json, or a GGUF file in it; empty:
// there is no model.
std::string ModelIn(const std::string& folder);

absl::Status MakeFolder(const std::string& path);
bool IsWholeFile(const std::string& path, int64_t size);
FetchOptions FetchOptionsOf(const PullOptions& options);
int64_t BytesOf(const std::vector<HubFile>& files);
// RESOURCE_EXHAUSTED for a model of more bytes than the options allow.
absl::Status CheckSize(const Source& source, const PullOptions& options, int64_t bytes);

}  // namespace quire::pull
