#include "cli/pull/store_pull.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/pull/s3.h"
#include "common/ascii.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

// What two pulls of the same model have in common: digests and signatures may differ.
std::string OriginOf(const Source& source) {
  return source.kind == Kind::kWeb ? source.url.substr(0, source.url.find('?')) : BaseOf(source);
}

// The origin that the folder notes; empty: it notes none.
std::string NotedOrigin(const std::string& folder) {
  std::ifstream file(folder + "/.source");
  std::string line;
  std::getline(file, line);
  return line;
}

// One file of a web server, into a folder of its own in the store.
class WebPull {
 public:
  WebPull(const Source& source, const PullOptions& options)
      : source_(source),
        options_(options),
        session_(options.authorities, options.reach, *options.cancelled) {}

  absl::StatusOr<Pulled> Run() {
    FileJob job;
    job.name = source_.file;
    QUIRE_ASSIGN_OR_RETURN(job.address, ParseAddress(source_.url));
    QUIRE_RETURN_IF_ERROR(Annotate(Probe(job), source_.text));
    QUIRE_RETURN_IF_ERROR(CheckSize(source_, options_, job.size));
    const std::string folder = FolderOf(source_, options_.store);
    QUIRE_ASSIGN_OR_RETURN(const FileLock lock, TakeFolder(source_, options_));
    job.final_path = folder + "/" + source_.file;
    job.part_path = job.final_path + ".quire-part";
    Pulled pulled;
    pulled.path = job.final_path;
    pulled.bytes = job.size;
    if (IsWholeFile(job.final_path, job.size)) return pulled;
    if (source_.sha256.empty()) {
      options_.on_note("the address names no digest to check; add #sha256=… to have it checked");
    } else {
      job.digest_kind = DigestKind::kSha256;
      job.digest = source_.sha256;
    }
    QUIRE_ASSIGN_OR_RETURN(pulled.totals, Fetch({job}, FetchOptionsOf(options_)));
    QUIRE_RETURN_IF_ERROR(NoteSource(source_, folder));
    return pulled;
  }

 private:
  // The file's length and the identity of its content, from the answer for its first byte.
  absl::Status Probe(FileJob& job) {
    Request request;
    request.address = job.address;
    request.headers = {{"Range", "bytes=0-0"}};
    Reply head;
    const TakeHead take_head = [&](const Reply& answer) -> TakeBytes {
      head = answer;
      return [](std::string_view) { return absl::CancelledError("enough"); };
    };
    const absl::StatusOr<Reply> reply = session_.Follow(request, take_head);
    if (head.status == 0) return reply.status();
    if (head.status != 200 && head.status != 206) {
      const std::string said = "the server answers with status " + std::to_string(head.status);
      return head.status == 404 ? absl::NotFoundError(AbslView(said))
                                : absl::UnavailableError(AbslView(said));
    }
    std::string_view total = head.Header(head.status == 206 ? "content-range" : "content-length");
    total = total.substr(total.find('/') + 1);  // of "bytes 0-0/TOTAL"
    const auto [end, error] = std::from_chars(total.data(), total.data() + total.size(), job.size);
    if (error != std::errc() || end != total.data() + total.size() || job.size < 1 ||
        job.size > kMaxFileBytes) {
      return absl::UnavailableError("the server does not say how long the file is");
    }
    job.identity = Sha256Hex(std::string(head.Header("etag")) + "\n" +
                             std::string(head.Header("last-modified")));
    return absl::OkStatus();
  }

  const Source& source_;
  const PullOptions& options_;
  HttpSession session_;
};

// The objects below a prefix that make up a model.
class S3Pull {
 public:
  S3Pull(const Source& source, const PullOptions& options)
      : source_(source),
        options_(options),
        session_(options.authorities, options.reach, *options.cancelled) {}

  absl::StatusOr<Pulled> Run() {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<S3Object> objects,
                           ListObjects(options_.s3, source_, session_));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<HubFile> files, Choose(objects));
    QUIRE_RETURN_IF_ERROR(CheckSize(source_, options_, BytesOf(files)));
    const std::string folder = FolderOf(source_, options_.store);
    QUIRE_ASSIGN_OR_RETURN(const FileLock lock, TakeFolder(source_, options_));
    std::vector<FileJob> jobs;
    Pulled pulled;
    for (const HubFile& file : files) {
      pulled.bytes += file.size;
      const std::string path = folder + "/" + file.path;
      QUIRE_RETURN_IF_ERROR(MakeFolder(fs::path(path).parent_path()));
      if (IsWholeFile(path, file.size) && !NotedOrigin(folder).empty()) continue;
      if (file.size == 0) {
        std::ofstream(path).flush();
        continue;
      }
      QUIRE_ASSIGN_OR_RETURN(FileJob job, JobOf(file, path));
      jobs.push_back(std::move(job));
    }
    options_.on_note("a store gives no digests to check; sizes and ETags are held to its list");
    QUIRE_ASSIGN_OR_RETURN(pulled.totals, Fetch(jobs, FetchOptionsOf(options_)));
    QUIRE_RETURN_IF_ERROR(NoteSource(source_, folder));
    pulled.path = files.size() == 1 ? folder + "/" + files.front().path : folder;
    return pulled;
  }

 private:
  bool NamesFile() const { return EndsWithIgnoringCase(source_.file, ".gguf"); }

  // The folder of the objects, with its slash; empty: the whole bucket.
  std::string Prefix() const {
    if (source_.file.empty()) return "";
    if (!NamesFile()) return source_.file + "/";
    const size_t slash = source_.file.rfind('/');
    return slash == std::string::npos ? "" : source_.file.substr(0, slash + 1);
  }

  absl::StatusOr<std::vector<HubFile>> Choose(const std::vector<S3Object>& objects) {
    HubSnapshot snapshot;
    const std::string prefix = Prefix();
    for (const S3Object& object : objects) {
      if (!object.key.starts_with(prefix) || object.key.ends_with('/')) continue;
      HubFile file;
      file.path = object.key.substr(prefix.size());
      QUIRE_RETURN_IF_ERROR(Annotate(CheckFileName(file.path), source_.text));
      file.size = object.size;
      file.digest = object.etag;
      snapshot.files.push_back(std::move(file));
    }
    if (snapshot.files.empty()) {
      return absl::NotFoundError(AbslView(source_.text + ": there is nothing below this prefix"));
    }
    Source chosen = source_;
    if (NamesFile()) {
      chosen.file = source_.file.substr(prefix.size());
      return ChooseFiles(snapshot, chosen);
    }
    chosen.file.clear();
    return ChooseFiles(snapshot, chosen);
  }

  absl::StatusOr<FileJob> JobOf(const HubFile& file, const std::string& path) {
    FileJob job;
    job.name = file.path;
    QUIRE_ASSIGN_OR_RETURN(job.address, SignedAddress(options_.s3, {.bucket = source_.repo,
                                                                    .key = Prefix() + file.path,
                                                                    .query = {},
                                                                    .time = S3Time()}));
    // An object that becomes another one meanwhile is not mixed with what is here.
    if (!file.digest.empty()) job.headers = {{"If-Match", file.digest}};
    job.size = file.size;
    job.identity = Sha256Hex(file.digest);
    job.final_path = path;
    job.part_path = path + ".quire-part";
    return job;
  }

  const Source& source_;
  const PullOptions& options_;
  HttpSession session_;
};

}  // namespace

std::string FolderOf(const Source& source, const std::string& store) {
  return store + "/" + ServedNameOf(source);
}

absl::Status NoteSource(const Source& source, const std::string& folder) {
  std::ofstream file(folder + "/.source", std::ios::trunc);
  file << OriginOf(source) << "\n";
  file.close();
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(AbslView(folder + "/.source: cannot be written"));
}

absl::StatusOr<FileLock> TakeFolder(const Source& source, const PullOptions& options) {
  const std::string folder = FolderOf(source, options.store);
  QUIRE_RETURN_IF_ERROR(MakeFolder(folder));
  QUIRE_ASSIGN_OR_RETURN(
      FileLock lock, FileLock::Take(folder + "/.lock", *options.cancelled, [&] {
        options.on_note("another pull of " + source.text + " is under way; waiting for it");
      }));
  const std::string noted = NotedOrigin(folder);
  if (noted.empty() || noted == OriginOf(source)) return lock;
  const std::string name = ServedNameOf(source);
  return absl::AlreadyExistsError(AbslView("'" + name + "' is there already, from " + noted +
                                           "; `quire rm " + name + "` takes it away"));
}

int64_t BytesOf(const std::vector<HubFile>& files) {
  int64_t bytes = 0;
  for (const HubFile& file : files) bytes += file.size;
  return bytes;
}

absl::Status CheckSize(const Source& source, const PullOptions& options, int64_t bytes) {
  if (options.max_bytes == 0 || bytes <= options.max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      AbslView(source.text + ": has " + std::to_string(bytes) + " bytes, and a client may pull " +
               std::to_string(options.max_bytes) +
               " (--max-pull-bytes); `quire pull` on the machine itself has no such limit"));
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(AbslView(path + ": " + error.message()));
}

bool IsWholeFile(const std::string& path, int64_t size) {
  std::error_code error;
  return fs::is_regular_file(path, error) &&
         static_cast<int64_t>(fs::file_size(path, error)) == size && !error;
}

FetchOptions FetchOptionsOf(const PullOptions& options) {
  FetchOptions fetch;
  fetch.connections = options.connections;
  fetch.bytes_per_second = options.bytes_per_second;
  fetch.authorities = options.authorities;
  fetch.reach = options.reach;
  fetch.cancelled = options.cancelled;
  fetch.on_progress = options.on_progress;
  return fetch;
}

std::string ModelIn(const std::string& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder + "/config.json", error)) return folder;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (EndsWithIgnoringCase(it->path().string(), ".gguf")) return it->path().string();
  }
  return "";
}

std::string StoredPath(const Source& source, const std::string& store) {
  std::string folder = FolderOf(source, store);
  if (NotedOrigin(folder) != OriginOf(source)) return "";
  const std::string path = folder + "/" + source.file.substr(source.file.rfind('/') + 1);
  std::error_code error;
  if (EndsWithIgnoringCase(source.file, ".gguf"))
    return fs::is_regular_file(path, error) ? path : "";
  return ModelIn(folder);
}

absl::StatusOr<Pulled> PullFromWeb(const Source& source, const PullOptions& options) {
  return WebPull(source, options).Run();
}

absl::StatusOr<Pulled> PullFromS3(const Source& source, const PullOptions& options) {
  return S3Pull(source, options).Run();
}

}  // namespace quire::pull
