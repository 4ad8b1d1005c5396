#include "cli/pull/pull.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <tuple>

#include "cli/pull/file_lock.h"
#include "cli/pull/store_pull.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

// Blobs below this are fetched whole, and need no lock of their own beside the repository's.
constexpr int64_t kLockedBytes = 1 << 20;

std::string LockFolder(const HubSettings& settings, const std::string& repo) {
  const std::string folder = RepoFolder(settings, repo);
  return settings.cache + "/.locks/" + folder.substr(folder.rfind('/') + 1);
}

class HubPull {
 public:
  HubPull(const Source& source, const PullOptions& options)
      : source_(source),
        options_(options),
        session_(options.authorities, options.reach, *options.cancelled) {}

  absl::StatusOr<Pulled> Run() {
    if (options_.hub.offline) {
      return absl::UnavailableError(AbslView("hf:" + source_.repo + ": is not in " +
                                             options_.hub.cache +
                                             ", and HF_HUB_OFFLINE keeps the hub out"));
    }
    QUIRE_ASSIGN_OR_RETURN(const HubSnapshot snapshot, Describe(options_.hub, source_, session_));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<HubFile> files, ChooseFiles(snapshot, source_));
    QUIRE_RETURN_IF_ERROR(CheckSize(source_, options_, BytesOf(files)));
    const auto waits = [this] {
      options_.on_note("another pull of " + source_.text + " is under way; waiting for it");
    };
    QUIRE_ASSIGN_OR_RETURN(const FileLock lock,
                           FileLock::Take(LockFolder(options_.hub, source_.repo) + "/quire.lock",
                                          *options_.cancelled, waits));
    Pulled pulled;
    QUIRE_ASSIGN_OR_RETURN(pulled.totals, FetchBlobs(snapshot.commit, files));
    for (const HubFile& file : files) {
      pulled.bytes += file.size;
      QUIRE_RETURN_IF_ERROR(LinkFile(options_.hub, source_, snapshot.commit, file));
    }
    QUIRE_RETURN_IF_ERROR(WriteRef(options_.hub, source_, snapshot.commit));
    pulled.path = RepoFolder(options_.hub, source_.repo) + "/snapshots/" + snapshot.commit;
    if (files.size() == 1) pulled.path += "/" + files.front().path;
    return pulled;
  }

 private:
  absl::StatusOr<FetchTotals> FetchBlobs(const std::string& commit,
                                         const std::vector<HubFile>& files) {
    const std::string blobs = RepoFolder(options_.hub, source_.repo) + "/blobs";
    QUIRE_RETURN_IF_ERROR(MakeFolder(blobs));
    std::vector<FileLock> locks;  // of the hub's own client
    std::vector<FileJob> jobs;
    std::set<std::string> seen;
    // In the order of digests, so that two processes cannot wait for each other.
    std::vector<const HubFile*> sorted;
    for (const HubFile& file : files) sorted.push_back(&file);
    std::sort(sorted.begin(), sorted.end(),
              [](const HubFile* a, const HubFile* b) { return a->digest < b->digest; });
    for (const HubFile* file : sorted) {
      if (IsWholeFile(blobs + "/" + file->digest, file->size)) continue;
      if (!seen.insert(file->digest).second) continue;
      if (file->size >= kLockedBytes) {
        QUIRE_ASSIGN_OR_RETURN(
            FileLock lock,
            FileLock::Take(LockFolder(options_.hub, source_.repo) + "/" + file->digest + ".lock",
                           *options_.cancelled, [this] {
                             options_.on_note("another program fetches a file of " + source_.text +
                                              "; waiting for it");
                           }));
        if (IsWholeFile(blobs + "/" + file->digest, file->size)) continue;
        locks.push_back(std::move(lock));
      }
      QUIRE_ASSIGN_OR_RETURN(FileJob job, JobOf(commit, *file, blobs));
      if (job.size > 0) jobs.push_back(std::move(job));
    }
    std::sort(jobs.begin(), jobs.end(), [](const FileJob& a, const FileJob& b) {
      return std::tie(a.size, a.name) < std::tie(b.size, b.name);
    });
    return Fetch(jobs, FetchOptionsOf(options_));
  }

  absl::StatusOr<FileJob> JobOf(const std::string& commit, const HubFile& file,
                                const std::string& blobs) {
    QUIRE_ASSIGN_OR_RETURN(const Address endpoint, ParseAddress(options_.hub.endpoint));
    FileJob job;
    job.name = file.path;
    job.address = FileAddress(endpoint, source_, commit, file.path);
    if (!options_.hub.token.empty()) {
      job.headers.emplace_back("Authorization", "Bearer " + options_.hub.token);
    }
    job.size = file.size;
    job.digest_kind = file.digest_kind;
    job.digest = file.digest;
    job.identity = file.digest;
    job.final_path = blobs + "/" + file.digest;
    job.part_path = job.final_path + ".quire-part";
    if (job.size == 0 && !std::ofstream(job.final_path).good()) {
      return absl::UnavailableError(AbslView(job.final_path + ": cannot be written"));
    }
    return job;
  }

  const Source& source_;
  const PullOptions& options_;
  HttpSession session_;
};

}  // namespace

std::string StoreFolder(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::string caches = value("XDG_CACHE_HOME");
  if (caches.empty()) caches = value("HOME") + "/.cache";
  return caches + "/quire/models";
}

std::string PathHere(const Source& source, const PullOptions& options) {
  if (source.kind == Kind::kHub) return CachedPath(options.hub, source);
  return source.kind == Kind::kLocal ? "" : StoredPath(source, options.store);
}

absl::StatusOr<Pulled> Pull(const Source& source, const PullOptions& given) {
  PullOptions options = given;
  if (options.for_client && source.kind != Kind::kLocal) {
    options.reach.only_public = true;
    // Where the pull begins is the operator's choice: a hub of one's own may have such an address.
    const bool of_hub = source.kind == Kind::kHub;
    if (const auto begin = ParseAddress(of_hub ? options.hub.endpoint : source.url); begin.ok()) {
      options.reach.except = begin->Origin();
    }
  }
  if (source.kind != Kind::kHub) options.reach.refused_advice = "is there a way to it from here?";
  if (source.kind == Kind::kHub) return HubPull(source, options).Run();
  if (source.kind == Kind::kWeb) return PullFromWeb(source, options);
  if (source.kind == Kind::kS3) return PullFromS3(source, options);
  if (source.kind == Kind::kOci) return PullFromRegistry(source, options);
  if (source.kind == Kind::kMlflow) return PullFromMlflow(source, options);
  return InvalidArgument("'" + source.text +
                         "' leads to nowhere outside this machine; name a model as hf:ORG/REPO, "
                         "https://HOST/FILE.gguf, s3://BUCKET/PREFIX, oci://REGISTRY/REPO:TAG or "
                         "mlflow:models:/NAME/VERSION");
}

}  // namespace quire::pull
