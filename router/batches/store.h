// Files and batches on disk, in a folder of each tenant below --batches-dir.
//
// The disk is the truth, and nothing of an object is kept in memory: several routers may share the
// folder. Blocking, for background threads; any thread.
//
// A tenant's folder has, by id: `file-…` and `file-….json` (contents and description) and
// `batch_….json` (description). A batch that has not ended also has `batch_….open`, on which the
// router that runs it holds a lock, `.out` and `.err` (results so far), and `.cancel` where a
// client asked for its end.
//
//  1. A description and an upload are there whole or not at all; results are whole lines.
//  2. A tenant meets its own objects only, and no word of a client becomes a path: ids have a form
//     of their own, and the folder's name is a hash of the tenant's.
//  3. One router at a time runs a batch, and it alone writes the description.
//  4. At each limit the new object is refused, and nothing of the kept ones is lost.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/sync.h"
#include "router/batches/disk.h"
#include "router/batches/limits.h"
#include "router/batches/objects.h"

namespace quire::batches {

// The right to run one batch; ends with the object, or with the process.
struct Lease {
  std::string folder;  // path
  std::string id;
  Descriptor lock;
  BatchObject batch;  // as it was when the lock was had

  std::string PathOf(std::string_view ending) const;
};

// A batch that has not ended.
struct OpenBatch {
  std::string folder;  // name
  std::string id;
  bool cancelled = false;
};

struct Page {
  size_t limit = 0;
  std::string after = {};  // an id; empty: from the beginning
  bool oldest_first = false;
  std::string purpose = {};  // of files; empty: any
};
template <class T>
struct Listed {
  std::vector<T> objects;
  bool has_more = false;
};

class Store {
 public:
  // Makes the folder where it is not there. The clock gives µs since 1970.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& dir, const Limits& limits,
                                                     BatchMetrics& metrics,
                                                     std::function<int64_t()> unix_micros);

  // What it costs to go through a tenant's folder and read so many descriptions, in bytes of input
  // that take as long. Any thread; reads no disk.
  size_t CostOf(const std::string& tenant, size_t descriptions);

  Result<FileObject> KeepFile(const std::string& tenant, const std::string& filename,
                              std::string_view data);
  Result<FileObject> File(const std::string& tenant, const std::string& id);
  Result<Listed<FileObject>> Files(const std::string& tenant, const Page& page);
  // kConflict while a batch reads it.
  std::optional<ApiError> DeleteFile(const std::string& tenant, const std::string& id);
  // A file that is deleted is empty from then on.
  Result<std::shared_ptr<Descriptor>> Contents(const std::string& tenant, const std::string& id);

  // Takes endpoint, input file, metadata and creator of `batch`.
  Result<BatchObject> Create(BatchObject batch);
  Result<BatchObject> Batch(const std::string& tenant, const std::string& id);
  Result<Listed<BatchObject>> Batches(const std::string& tenant, const Page& page);
  Result<BatchObject> Cancel(const std::string& tenant, const std::string& id);

  // For the runner. Counts again what the folder holds; oldest first.
  absl::StatusOr<std::vector<OpenBatch>> Look();
  // nullptr: another process runs it, or it has ended.
  absl::StatusOr<std::unique_ptr<Lease>> Take(const OpenBatch& batch);
  absl::Status Save(Lease& lease);
  // Room for more results. RESOURCE_EXHAUSTED: the limit of bytes is met.
  absl::Status Reserve(const Lease& lease, size_t bytes);
  // Makes the results files of the tenant, and ends the batch. May be called again after an error.
  absl::Status Finish(Lease& lease, Status ends_as);

  const Limits& limits() const { return limits_; }
  int64_t NowMicros() const { return unix_micros_(); }
  int64_t Now() const { return unix_micros_() / 1'000'000; }

 private:
  struct Usage {
    size_t files = 0;
    size_t bytes = 0;
    size_t open = 0;
    size_t names = 0;  // of all kinds
  };

  Store(std::string dir, const Limits& limits, BatchMetrics& metrics,
        std::function<int64_t()> unix_micros);
  std::string NewId(std::string_view prefix) const;
  std::string FolderOf(const std::string& tenant) const;
  ApiError Problem(const absl::Status& status);
  absl::Status WriteKept(const std::string& folder, const std::string& name, std::string_view text);
  absl::Status CountAgain(const std::string& folder);
  void Count(const std::string& folder, const std::vector<FolderEntry>& files);
  // What stands against one more file, its bytes or one more open batch.
  std::optional<ApiError> CheckRoom(const std::string& folder, const Usage& more);
  void Add(const std::string& folder, const Usage& more);
  absl::Status ForgetOld(const std::string& folder);
  // When a client asked for its end; 0: none did.
  static int64_t CancelledAt(const std::string& folder, const std::string& id);
  Result<BatchObject> ReadBatch(const std::string& folder, const std::string& id);
  void ForgetFolder(const std::string& path);
  absl::Status MakeOutput(Lease& lease, std::string_view ending, const std::string& id,
                          bool& is_there);
  void ShowUsage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string dir_;
  const Limits limits_;
  BatchMetrics& metrics_;
  const std::function<int64_t()> unix_micros_;
  Mutex mutex_;
  std::map<std::string, Usage> usage_ ABSL_GUARDED_BY(mutex_);  // by path of the folder
};

}  // namespace quire::batches
