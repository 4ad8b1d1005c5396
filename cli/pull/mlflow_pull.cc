// Pulls a model of a tracking server into a folder of the store.
#include "cli/pull/mlflow.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <tuple>

#include "cli/pull/placed.h"
#include "cli/pull/store_pull.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

class MlflowPull {
 public:
  MlflowPull(const Source& source, const PullOptions& options)
      : source_(source),
        options_(options),
        session_(options.authorities, options.reach, *options.cancelled),
        folder_(FolderOf(source, options.store)) {}

  absl::StatusOr<Pulled> Run() {
    QUIRE_ASSIGN_OR_RETURN(const MlflowName name, ParseMlflowName(source_.text.substr(7)));
    QUIRE_ASSIGN_OR_RETURN(MlflowServer server,
                           MlflowServer::Make(options_.mlflow, source_, session_));
    QUIRE_ASSIGN_OR_RETURN(place_, server.Find(name));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<HubFile> files, List(server));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<ArtifactFile> plan, Plan(server, files));
    Pulled pulled;
    for (const ArtifactFile& one : plan) pulled.bytes += one.file.size;
    QUIRE_RETURN_IF_ERROR(CheckSize(source_, options_, pulled.bytes));
    QUIRE_ASSIGN_OR_RETURN(const FileLock lock, TakeFolder(source_, options_));
    options_.on_note("a tracking server gives no digests to check; sizes are held to its list");
    QUIRE_ASSIGN_OR_RETURN(const std::vector<FileJob> jobs, Jobs(server, plan));
    FetchOptions fetch = FetchOptionsOf(options_);
    fetch.denied_advice = place_.in_s3 ? "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be of "
                                         "an account that may read it"
                                       : "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, "
                                         "or MLFLOW_TRACKING_TOKEN, must be of an account that "
                                         "may read it";
    QUIRE_ASSIGN_OR_RETURN(pulled.totals, Fetch(jobs, fetch));
    QUIRE_RETURN_IF_ERROR(NoteSource(source_, folder_));
    pulled.path = ModelIn(folder_);
    return pulled;
  }

 private:
  absl::StatusOr<std::vector<HubFile>> List(MlflowServer& server) {
    if (!place_.in_s3) return server.List(place_);
    Source bucket;
    bucket.kind = Kind::kS3;
    bucket.text = source_.text;
    bucket.repo = place_.bucket;
    bucket.file = place_.path;
    QUIRE_ASSIGN_OR_RETURN(const std::vector<S3Object> objects,
                           ListObjects(options_.s3, bucket, session_));
    std::vector<HubFile> files;
    const std::string prefix = place_.path.empty() ? "" : place_.path + "/";
    for (const S3Object& object : objects) {
      if (!object.key.starts_with(prefix) || object.key.ends_with('/')) continue;
      HubFile file;
      file.path = object.key.substr(prefix.size());
      QUIRE_RETURN_IF_ERROR(Annotate(CheckFileName(file.path), source_.text));
      file.size = object.size;
      file.digest = object.etag;
      files.push_back(std::move(file));
    }
    return files;
  }

  absl::StatusOr<std::vector<ArtifactFile>> Plan(MlflowServer& server,
                                                 const std::vector<HubFile>& files) {
    const bool has_mlmodel = std::any_of(
        files.begin(), files.end(), [](const HubFile& file) { return file.path == "MLmodel"; });
    if (!has_mlmodel) return PlanArtifacts(files, nullptr, source_);
    QUIRE_ASSIGN_OR_RETURN(const Address address, AddressOf(server, "MLmodel"));
    QUIRE_ASSIGN_OR_RETURN(const std::string text,
                           server.Text(address, !place_.in_s3, kMaxMlmodelBytes));
    const absl::StatusOr<Mlmodel> mlmodel = ParseMlmodel(text);
    if (!mlmodel.ok()) return Annotate(mlmodel.status(), source_.text);
    return PlanArtifacts(files, &*mlmodel, source_);
  }

  absl::StatusOr<Address> AddressOf(const MlflowServer& server, const std::string& path) const {
    if (!place_.in_s3) return server.FileAddress(place_, path);
    const std::string prefix = place_.path.empty() ? "" : place_.path + "/";
    return SignedAddress(
        options_.s3,
        {.bucket = place_.bucket, .key = prefix + path, .query = {}, .time = S3Time()});
  }

  // What an artifact is, as far as it can be said without a digest.
  std::string IdentityOf(const MlflowServer& server, const HubFile& file) const {
    return Sha256Hex(server.address().Origin() + "\n" + place_.uri + "\n" + file.path + "\n" +
                     std::to_string(file.size) + "\n" + file.digest);
  }

  // Of all files that are not here. What is here of other artifacts goes, and what is to come is
  // noted, so that a file that has come counts even where the pull ends early.
  absl::StatusOr<std::vector<FileJob>> Jobs(const MlflowServer& server,
                                            const std::vector<ArtifactFile>& plan) {
    const std::vector<PlacedFile> before = ReadPlaced(folder_);
    std::vector<PlacedFile> now;
    std::vector<FileJob> jobs;
    for (const ArtifactFile& one : plan) {
      const std::string identity = IdentityOf(server, one.file);
      now.push_back({identity, one.file.size, one.path});
      const std::vector<PlacedFile> there = StillThere(folder_, before, identity);
      if (!there.empty() && there.front().path == one.path) continue;
      FileJob job;
      job.name = one.file.path;
      QUIRE_ASSIGN_OR_RETURN(job.address, AddressOf(server, one.file.path));
      if (!place_.in_s3 && !server.authorization().empty()) {
        job.headers.emplace_back("Authorization", server.authorization());
      }
      if (!one.file.digest.empty()) job.headers.emplace_back("If-Match", one.file.digest);
      job.size = one.file.size;
      job.identity = identity;
      job.final_path = folder_ + "/" + one.path;
      job.part_path = job.final_path + ".quire-part";
      std::error_code error;
      fs::remove(job.final_path, error);
      if (job.size > 0) {
        jobs.push_back(std::move(job));
      } else if (!std::ofstream(job.final_path).good()) {
        return absl::UnavailableError(AbslView(job.final_path + ": cannot be written"));
      }
    }
    QUIRE_RETURN_IF_ERROR(WritePlaced(folder_, before, now));
    std::sort(jobs.begin(), jobs.end(), [](const FileJob& a, const FileJob& b) {
      return std::tie(a.size, a.name) < std::tie(b.size, b.name);
    });
    return jobs;
  }

  const Source& source_;
  const PullOptions& options_;
  HttpSession session_;
  const std::string folder_;
  ArtifactPlace place_;
};

}  // namespace

absl::StatusOr<Pulled> PullFromMlflow(const Source& source, const PullOptions& options) {
  return MlflowPull(source, options).Run();
}

}  // namespace quire::pull
