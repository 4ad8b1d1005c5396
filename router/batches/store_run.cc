// What the store does for the runner.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "router/batches/store.h"

namespace quire::batches {
namespace {

constexpr int64_t kLeftBehindSeconds = 3600;  // what an upload left when its router was killed

bool IsLeftBehind(const FolderEntry& file, const std::set<std::string>& names, int64_t now) {
  if (now - file.modified_at < kLeftBehindSeconds) return false;
  return file.name.starts_with(".tmp-") ||
         (IsId(file.name, kFilePrefix) && !names.contains(file.name + ".json"));
}

}  // namespace

absl::StatusOr<std::vector<OpenBatch>> Store::Look() {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> folders, FoldersIn(dir_));
  std::vector<OpenBatch> open;
  for (const std::string& folder : folders) {
    const std::string path = dir_ + "/" + folder;
    QUIRE_ASSIGN_OR_RETURN(const std::vector<FolderEntry> files, FilesIn(path));
    Count(path, files);
    std::set<std::string> names;
    for (const FolderEntry& file : files) names.insert(file.name);
    if (files.empty()) ForgetFolder(path);
    for (const FolderEntry& file : files) {
      if (IsLeftBehind(file, names, Now())) (void)RemoveFile(path + "/" + file.name);
      std::string_view id = file.name;
      if (!id.ends_with(".open")) continue;
      id.remove_suffix(5);
      if (!IsId(id, kBatchPrefix)) continue;
      open.push_back({folder, std::string(id), names.contains(std::string(id) + ".cancel")});
    }
  }
  std::sort(open.begin(), open.end(),
            [](const OpenBatch& a, const OpenBatch& b) { return a.id < b.id; });
  return open;
}

// Of a tenant that keeps nothing any more. It stays for a while: an upload may be about to begin.
void Store::ForgetFolder(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0 || Now() - info.st_mtime < kLeftBehindSeconds) return;
  if (rmdir(path.c_str()) != 0) return;
  MutexLock lock(mutex_);
  usage_.erase(path);
}

absl::StatusOr<std::unique_ptr<Lease>> Store::Take(const OpenBatch& open) {
  auto lease = std::make_unique<Lease>();
  lease->folder = dir_ + "/" + open.folder;
  lease->id = open.id;
  const std::string path = lease->PathOf(".open");
  auto file = OpenFile(path, O_RDWR);
  if (absl::IsNotFound(file.status())) return nullptr;
  QUIRE_RETURN_IF_ERROR(file.status());
  lease->lock = *std::move(file);
  if (flock(lease->lock.get(), LOCK_EX | LOCK_NB) != 0) return nullptr;
  // A router that ends a batch takes the name away before it releases the lock.
  struct stat held = {}, named = {};
  if (fstat(lease->lock.get(), &held) != 0 || lstat(path.c_str(), &named) != 0 ||
      held.st_ino != named.st_ino || held.st_dev != named.st_dev) {
    return nullptr;
  }
  // A batch is made under this lock: a mark without a description is what a kill left.
  QUIRE_ASSIGN_OR_RETURN(const Descriptor lock, LockFolder(dir_));
  Result<BatchObject> batch = ReadBatch(lease->folder, open.id);
  if (!batch.ok() && batch.error().code != ApiCode::kNotFound) {
    return absl::InternalError(AbslView(open.id + ": " + batch.error().message));
  }
  if (!batch.ok() || HasEnded(batch.value().status)) {
    QUIRE_RETURN_IF_ERROR(RemoveFile(lease->PathOf(".cancel")));
    QUIRE_RETURN_IF_ERROR(RemoveFile(path));
    return nullptr;
  }
  lease->batch = std::move(batch.value());
  return lease;
}

absl::Status Store::Save(Lease& lease) {
  absl::Status saved = WriteKept(lease.folder, lease.id + ".json", Kept(lease.batch));
  if (!saved.ok()) metrics_.disk_errors.Add();
  return saved;
}

absl::Status Store::Reserve(const Lease& lease, size_t bytes) {
  if (CheckRoom(lease.folder, {0, bytes, 0})) {
    return absl::ResourceExhaustedError("the limit of bytes is met (--max-batch-files-bytes)");
  }
  Add(lease.folder, {0, bytes, 0});
  return absl::OkStatus();
}

// The results become a file of the tenant: first its description, which is made again should this
// be the second try, then its contents by their new name.
absl::Status Store::MakeOutput(Lease& lease, std::string_view ending, const std::string& id,
                               bool& is_there) {
  const std::string path = lease.PathOf(ending);
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();  // an earlier try moved it
  if (info.st_size == 0) {
    is_there = false;
    return RemoveFile(path);
  }
  const FileObject file{id, lease.id + (ending == ".out" ? "_output.jsonl" : "_error.jsonl"),
                        std::string(kOutputPurpose), info.st_size, Now()};
  QUIRE_RETURN_IF_ERROR(WriteKept(lease.folder, id + ".json", Kept(file)));
  QUIRE_RETURN_IF_ERROR(MoveFile(path, lease.folder + "/" + id));
  return SyncFolder(lease.folder);
}

absl::Status Store::Finish(Lease& lease, Status ends_as) {
  BatchObject& batch = lease.batch;
  if (batch.status != Status::kFinalizing && !HasEnded(batch.status)) {
    batch.status = Status::kFinalizing;
    batch.ends_as = ends_as;
    if (ends_as == Status::kCancelled && batch.cancelling_at == 0) {
      batch.cancelling_at = CancelledAt(lease.folder, lease.id);
    }
    batch.output_file_id = NewId(kFilePrefix);
    batch.error_file_id = NewId(kFilePrefix);
    batch.finalizing_at = Now();
    struct stat info = {};
    batch.has_output = lstat(lease.PathOf(".out").c_str(), &info) == 0 && info.st_size > 0;
    batch.has_errors = lstat(lease.PathOf(".err").c_str(), &info) == 0 && info.st_size > 0;
    if (absl::Status saved = Save(lease); !saved.ok()) {
      batch.status = Status::kInProgress;
      return saved;
    }
  }
  if (!HasEnded(batch.status)) {
    QUIRE_RETURN_IF_ERROR(MakeOutput(lease, ".out", batch.output_file_id, batch.has_output));
    QUIRE_RETURN_IF_ERROR(MakeOutput(lease, ".err", batch.error_file_id, batch.has_errors));
  }
  QUIRE_ASSIGN_OR_RETURN(const Descriptor lock, LockFolder(dir_));
  batch.status = batch.ends_as;
  batch.ended_at = Now();
  if (absl::Status saved = Save(lease); !saved.ok()) {
    batch.status = Status::kFinalizing;
    return saved;
  }
  QUIRE_RETURN_IF_ERROR(RemoveFile(lease.PathOf(".cancel")));
  QUIRE_RETURN_IF_ERROR(RemoveFile(lease.PathOf(".open")));
  return CountAgain(lease.folder);
}

}  // namespace quire::batches
