#include "router/batches/store.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <utility>

#include "common/check.h"

namespace quire::batches {
namespace {

constexpr size_t kMaxKeptBytes = 1u << 20;  // of one description
constexpr uint32_t kFullRetryMs = 60'000;
// Bytes of input that take as long as one name of a folder, and as one description.
constexpr size_t kCostOfName = 512;
constexpr size_t kCostOfDescription = 8192;
constexpr std::string_view kOpenEnding = ".open";
constexpr std::string_view kCancelEnding = ".cancel";
constexpr std::string_view kJsonEnding = ".json";
constexpr std::string_view kTemporary = ".tmp-";

std::string HexOfBytes(std::span<const unsigned char> bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

std::string RandomHex(size_t digits) {
  std::vector<unsigned char> bytes((digits + 1) / 2);
  QUIRE_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return HexOfBytes(bytes).substr(0, digits);
}

std::string TemporaryName() { return std::string(kTemporary) + RandomHex(16); }

// The ids in a folder that have a file with this ending, newest first.
std::vector<std::string> IdsIn(const std::vector<FolderEntry>& files, std::string_view prefix,
                               std::string_view ending) {
  std::vector<std::string> ids;
  for (const FolderEntry& file : files) {
    std::string_view name = file.name;
    if (!name.ends_with(ending)) continue;
    name.remove_suffix(ending.size());
    if (IsId(name, prefix)) ids.emplace_back(name);
  }
  std::sort(ids.rbegin(), ids.rend());
  return ids;
}

// The objects of a page, read one by one; those that are gone meanwhile are left out.
template <class T, class ReadOne, class Fits>
Listed<T> ListPage(std::vector<std::string> ids, const Page& page, const ReadOne& read,
                   const Fits& fits) {
  if (page.oldest_first) std::reverse(ids.begin(), ids.end());
  Listed<T> listed;
  for (const std::string& id : ids) {
    const bool comes_later = page.oldest_first ? id > page.after : id < page.after;
    if (!page.after.empty() && !comes_later) continue;
    Result<T> object = read(id);
    if (!object.ok() || !fits(object.value())) continue;
    if (listed.objects.size() == page.limit) {
      listed.has_more = true;
      break;
    }
    listed.objects.push_back(std::move(object.value()));
  }
  return listed;
}

ApiError NoSuchFile(const std::string& id) {
  return {ApiCode::kNotFound, "No such File object: " + id.substr(0, 64), "", 0};
}
ApiError NoSuchBatch(const std::string& id) {
  return {ApiCode::kNotFound, "No batch found with id '" + id.substr(0, 64) + "'.", "", 0};
}

std::string LimitWords(size_t limit, const char* flag) {
  return std::to_string(limit) + " (" + flag + ")";
}

}  // namespace

std::string Lease::PathOf(std::string_view ending) const {
  return folder + "/" + id + std::string(ending);
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& dir, const Limits& limits,
                                                   BatchMetrics& metrics,
                                                   std::function<int64_t()> unix_micros) {
  QUIRE_RETURN_IF_ERROR(Annotate(MakeFolder(dir), "--batches-dir " + dir));
  std::unique_ptr<Store> store(new Store(dir, limits, metrics, std::move(unix_micros)));
  // Whatever would fail at each upload fails here, with the flag's name.
  const std::string name = TemporaryName();
  QUIRE_RETURN_IF_ERROR(
      Annotate(WriteWhole(dir, name, "", TemporaryName()), "--batches-dir " + dir));
  QUIRE_RETURN_IF_ERROR(RemoveFile(dir + "/" + name));
  QUIRE_RETURN_IF_ERROR(Annotate(LockFolder(dir).status(), "--batches-dir " + dir));
  QUIRE_RETURN_IF_ERROR(Annotate(store->Look().status(), "--batches-dir " + dir));
  return store;
}

Store::Store(std::string dir, const Limits& limits, BatchMetrics& metrics,
             std::function<int64_t()> unix_micros)
    : dir_(std::move(dir)),
      limits_(limits),
      metrics_(metrics),
      unix_micros_(std::move(unix_micros)) {}

std::string Store::NewId(std::string_view prefix) const {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof(digits), unix_micros_(), 16).ptr;
  std::string time(digits, end);
  constexpr size_t kTimeDigits = 14;
  time.insert(0, kTimeDigits - std::min(kTimeDigits, time.size()), '0');
  return std::string(prefix) + time + RandomHex(kIdDigits - time.size());
}

std::string Store::FolderOf(const std::string& tenant) const {
  const std::string word = "tenant:" + tenant;
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(word.data()), word.size(), hash);
  return dir_ + "/t" + HexOfBytes(std::span(hash).first(16));
}

ApiError Store::Problem(const absl::Status& status) {
  if (absl::IsNotFound(status)) return {ApiCode::kNotFound, StatusMessage(status), "", 0};
  metrics_.disk_errors.Add();
  if (absl::IsResourceExhausted(status)) {
    return {ApiCode::kUnavailable,
            StatusMessage(status) +
                "; nothing new was kept, and nothing was lost: delete files, or come again later",
            "", kFullRetryMs};
  }
  return {ApiCode::kInternal, StatusMessage(status), "", 0};
}

absl::Status Store::WriteKept(const std::string& folder, const std::string& name,
                              std::string_view text) {
  return WriteWhole(folder, name, text, TemporaryName());
}

void Store::ShowUsage() {
  Usage all;
  for (const auto& [folder, usage] : usage_) {
    all.files += usage.files;
    all.bytes += usage.bytes;
    all.open += usage.open;
  }
  metrics_.files.Set(static_cast<double>(all.files));
  metrics_.file_bytes.Set(static_cast<double>(all.bytes));
  metrics_.open.Set(static_cast<double>(all.open));
}

// The caller has the folder's lock, or is content with what is there at some moment.
absl::Status Store::CountAgain(const std::string& folder) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<FolderEntry> files, FilesIn(folder));
  Count(folder, files);
  return absl::OkStatus();
}

void Store::Count(const std::string& folder, const std::vector<FolderEntry>& files) {
  Usage usage;
  for (const FolderEntry& file : files) {
    if (std::string_view(file.name).starts_with(kTemporary)) continue;
    usage.bytes += static_cast<size_t>(file.bytes);
  }
  usage.names = files.size();
  usage.files = IdsIn(files, kFilePrefix, kJsonEnding).size();
  usage.open = IdsIn(files, kBatchPrefix, kOpenEnding).size();
  MutexLock lock(mutex_);
  usage_[folder] = usage;
  ShowUsage();
}

void Store::Add(const std::string& folder, const Usage& more) {
  MutexLock lock(mutex_);
  Usage& usage = usage_[folder];
  usage.files += more.files;
  usage.bytes += more.bytes;
  usage.open += more.open;
  ShowUsage();
}

std::optional<ApiError> Store::CheckRoom(const std::string& folder, const Usage& more) {
  Usage all, own;
  {
    MutexLock lock(mutex_);
    for (const auto& [of, usage] : usage_) {
      all.files += usage.files;
      all.bytes += usage.bytes;
      all.open += usage.open;
    }
    own = usage_[folder];
  }
  const struct {
    size_t all, own, more, limit;
    const char *what, *flag, *hint;
    Counter& refused;
  } checks[] = {
      {all.files, own.files, more.files, limits_.max_files, "files", "--max-batch-files",
       "delete files that are no longer needed", metrics_.refused_files},
      {all.bytes, own.bytes, more.bytes, limits_.max_file_bytes, "bytes of files",
       "--max-batch-files-bytes", "delete files that are no longer needed", metrics_.refused_bytes},
      {all.open, own.open, more.open, limits_.max_open, "batches that have not ended",
       "--max-open-batches", "come again when one has ended", metrics_.refused_open}};
  for (const auto& check : checks) {
    if (check.more == 0) continue;
    const bool is_own = check.own + check.more > ShareOf(check.limit);
    if (!is_own && check.all + check.more <= check.limit) continue;
    check.refused.Add();
    if (check.more > ShareOf(check.limit)) {
      return ApiError{ApiCode::kTooLarge,
                      "file: has " + std::to_string(check.more) + " bytes; a tenant may keep " +
                          LimitWords(ShareOf(check.limit), check.flag),
                      "file", 0};
    }
    const std::string whose = is_own ? "your share of " : "the limit of ";
    return ApiError{ApiCode::kRateLimited,
                    whose + check.what + " is met: " +
                        LimitWords(is_own ? ShareOf(check.limit) : check.limit, check.flag) + "; " +
                        check.hint,
                    "", kFullRetryMs};
  }
  return std::nullopt;
}

size_t Store::CostOf(const std::string& tenant, size_t descriptions) {
  const std::string folder = FolderOf(tenant);
  MutexLock lock(mutex_);
  const auto usage = usage_.find(folder);
  const size_t names = usage == usage_.end() ? 0 : usage->second.names;
  return names * kCostOfName + std::min(names, descriptions) * kCostOfDescription;
}

Result<FileObject> Store::KeepFile(const std::string& tenant, const std::string& filename,
                                   std::string_view data) {
  const std::string folder = FolderOf(tenant);
  FileObject file{NewId(kFilePrefix), filename, std::string(kInputPurpose),
                  static_cast<int64_t>(data.size()), Now()};
  const std::string kept = Kept(file);
  absl::Status status = MakeFolder(folder);
  if (!status.ok()) return Problem(status);
  const auto lock = LockFolder(dir_);
  if (!lock.ok()) return Problem(lock.status());
  if (status = CountAgain(folder); !status.ok()) return Problem(status);
  const Usage more{1, data.size() + kept.size(), 0};
  if (std::optional<ApiError> problem = CheckRoom(folder, more)) return *std::move(problem);
  // The contents first: a description without them would name a file that is not there.
  status = WriteKept(folder, file.id, data);
  if (status.ok()) status = WriteKept(folder, file.id + std::string(kJsonEnding), kept);
  if (!status.ok()) {
    (void)RemoveFile(folder + "/" + file.id);
    return Problem(status);
  }
  Add(folder, more);
  return file;
}

Result<FileObject> Store::File(const std::string& tenant, const std::string& id) {
  if (!IsId(id, kFilePrefix)) return NoSuchFile(id);
  const auto text =
      ReadSmallFile(FolderOf(tenant) + "/" + id + std::string(kJsonEnding), kMaxKeptBytes);
  if (absl::IsNotFound(text.status())) return NoSuchFile(id);
  if (!text.ok()) return Problem(text.status());
  FileObject file;
  if (const absl::Status read = batches::Read(*text, file); !read.ok()) return Problem(read);
  return file;
}

Result<Listed<FileObject>> Store::Files(const std::string& tenant, const Page& page) {
  const auto files = FilesIn(FolderOf(tenant));
  if (!files.ok()) return Problem(files.status());
  return ListPage<FileObject>(
      IdsIn(*files, kFilePrefix, kJsonEnding), page,
      [&](const std::string& id) { return File(tenant, id); },
      [&](const FileObject& file) { return page.purpose.empty() || file.purpose == page.purpose; });
}

std::optional<ApiError> Store::DeleteFile(const std::string& tenant, const std::string& id) {
  if (!IsId(id, kFilePrefix)) return NoSuchFile(id);
  const std::string folder = FolderOf(tenant);
  const auto lock = LockFolder(dir_);
  if (!lock.ok()) return Problem(lock.status());
  const auto files = FilesIn(folder);
  if (!files.ok()) return Problem(files.status());
  const std::vector<std::string> ids = IdsIn(*files, kFilePrefix, kJsonEnding);
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) return NoSuchFile(id);
  for (const std::string& batch_id : IdsIn(*files, kBatchPrefix, kOpenEnding)) {
    const Result<BatchObject> batch = ReadBatch(folder, batch_id);
    if (!batch.ok()) continue;
    const BatchObject& one = batch.value();
    if (one.input_file_id != id && one.output_file_id != id && one.error_file_id != id) continue;
    return ApiError{ApiCode::kConflict,
                    "the file is used by " + batch_id +
                        ", which has not ended; cancel the batch or wait for its end",
                    "", 0};
  }
  // The description first: contents alone are no object, and are cleared away later.
  absl::Status status = RemoveFile(folder + "/" + id + std::string(kJsonEnding));
  if (status.ok()) status = RemoveContents(folder + "/" + id);
  if (status.ok()) status = CountAgain(folder);
  if (!status.ok()) return Problem(status);
  return std::nullopt;
}

Result<std::shared_ptr<Descriptor>> Store::Contents(const std::string& tenant,
                                                    const std::string& id) {
  const Result<FileObject> file = File(tenant, id);
  if (!file.ok()) return file.error();
  auto opened = OpenFile(FolderOf(tenant) + "/" + id, O_RDONLY);
  if (absl::IsNotFound(opened.status())) return NoSuchFile(id);
  if (!opened.ok()) return Problem(opened.status());
  return std::make_shared<Descriptor>(*std::move(opened));
}

// One of the oldest that have ended goes for each that is too many.
absl::Status Store::ForgetOld(const std::string& folder) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<FolderEntry> files, FilesIn(folder));
  std::vector<std::string> ids = IdsIn(files, kBatchPrefix, kJsonEnding);
  const std::vector<std::string> open = IdsIn(files, kBatchPrefix, kOpenEnding);
  const std::set<std::string> is_open(open.begin(), open.end());
  for (size_t count = ids.size(); count >= limits_.max_kept && !ids.empty(); ids.pop_back()) {
    if (is_open.contains(ids.back())) continue;
    QUIRE_RETURN_IF_ERROR(RemoveFile(folder + "/" + ids.back() + std::string(kJsonEnding)));
    metrics_.forgotten.Add();
    --count;
  }
  return absl::OkStatus();
}

Result<BatchObject> Store::Create(BatchObject batch) {
  const std::string folder = FolderOf(batch.creator.tenant);
  const auto lock = LockFolder(dir_);
  if (!lock.ok()) return Problem(lock.status());
  const Result<FileObject> input = File(batch.creator.tenant, batch.input_file_id);
  if (!input.ok()) return input.error();
  if (input.value().purpose != kInputPurpose) {
    return InvalidField("input_file_id", "is a file of purpose \"" + input.value().purpose +
                                             "\"; upload one of purpose \"batch\"");
  }
  absl::Status status = CountAgain(folder);
  if (!status.ok()) return Problem(status);
  const Usage more{0, 0, 1};
  if (std::optional<ApiError> problem = CheckRoom(folder, more)) return *std::move(problem);
  if (status = ForgetOld(folder); !status.ok()) return Problem(status);
  batch.id = NewId(kBatchPrefix);
  batch.created_at = Now();
  batch.expires_at = batch.created_at + limits_.window_seconds;
  status = WriteKept(folder, batch.id + std::string(kOpenEnding), "");
  if (status.ok()) status = WriteKept(folder, batch.id + std::string(kJsonEnding), Kept(batch));
  if (!status.ok()) {
    (void)RemoveFile(folder + "/" + batch.id + std::string(kOpenEnding));
    return Problem(status);
  }
  Add(folder, more);
  return batch;
}

int64_t Store::CancelledAt(const std::string& folder, const std::string& id) {
  const auto text = ReadSmallFile(folder + "/" + id + std::string(kCancelEnding), 64);
  if (!text.ok()) return 0;
  int64_t at = 0;
  std::from_chars(text->data(), text->data() + text->size(), at);
  return std::max<int64_t>(at, 1);
}

Result<BatchObject> Store::ReadBatch(const std::string& folder, const std::string& id) {
  const auto text = ReadSmallFile(folder + "/" + id + std::string(kJsonEnding), kMaxKeptBytes);
  if (absl::IsNotFound(text.status())) return NoSuchBatch(id);
  if (!text.ok()) return Problem(text.status());
  BatchObject batch;
  if (const absl::Status read = batches::Read(*text, batch); !read.ok()) return Problem(read);
  if (!HasEnded(batch.status) && batch.cancelling_at == 0) {
    batch.cancelling_at = CancelledAt(folder, id);
  }
  return batch;
}

Result<BatchObject> Store::Batch(const std::string& tenant, const std::string& id) {
  if (!IsId(id, kBatchPrefix)) return NoSuchBatch(id);
  return ReadBatch(FolderOf(tenant), id);
}

Result<Listed<BatchObject>> Store::Batches(const std::string& tenant, const Page& page) {
  const std::string folder = FolderOf(tenant);
  const auto files = FilesIn(folder);
  if (!files.ok()) return Problem(files.status());
  return ListPage<BatchObject>(
      IdsIn(*files, kBatchPrefix, kJsonEnding), page,
      [&](const std::string& id) { return ReadBatch(folder, id); },
      [](const BatchObject&) { return true; });
}

Result<BatchObject> Store::Cancel(const std::string& tenant, const std::string& id) {
  if (!IsId(id, kBatchPrefix)) return NoSuchBatch(id);
  const std::string folder = FolderOf(tenant);
  const auto lock = LockFolder(dir_);
  if (!lock.ok()) return Problem(lock.status());
  Result<BatchObject> batch = ReadBatch(folder, id);
  if (!batch.ok()) return batch;
  if (HasEnded(batch.value().status) || batch.value().status == Status::kFinalizing) {
    return ApiError{ApiCode::kConflict, "the batch has ended, and can no longer be cancelled", "",
                    0};
  }
  if (batch.value().cancelling_at != 0) return batch;
  batch.value().cancelling_at = Now();
  const absl::Status written = WriteKept(folder, id + std::string(kCancelEnding),
                                         std::to_string(batch.value().cancelling_at));
  if (!written.ok()) return Problem(written);
  return batch;
}

}  // namespace quire::batches
