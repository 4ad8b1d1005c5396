// Pulls an artifact of a registry into a folder of the store.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "cli/pull/oci.h"
#include "cli/pull/placed.h"
#include "cli/pull/store_pull.h"
#include "cli/pull/tar.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

class OciPull {
 public:
  OciPull(const Source& source, const PullOptions& options)
      : source_(source),
        options_(options),
        session_(options.authorities, options.reach, *options.cancelled),
        registry_(options.oci, source, session_),
        folder_(FolderOf(source, options.store)) {}

  absl::StatusOr<Pulled> Run() {
    QUIRE_ASSIGN_OR_RETURN(const OciManifest manifest, registry_.Describe());
    QUIRE_ASSIGN_OR_RETURN(const OciPlan plan, PlanPieces(manifest, source_));
    Pulled pulled;
    for (const OciPiece& piece : plan.pieces) pulled.bytes += piece.layer.size;
    QUIRE_RETURN_IF_ERROR(CheckSize(source_, options_, pulled.bytes));
    QUIRE_ASSIGN_OR_RETURN(const FileLock lock, TakeFolder(source_, options_));
    SayWhatIsUnused(plan);
    before_ = ReadPlaced(folder_);
    for (const OciPiece& piece : plan.pieces) QUIRE_RETURN_IF_ERROR(Want(piece));
    QUIRE_ASSIGN_OR_RETURN(pulled.totals, FetchAll());
    QUIRE_RETURN_IF_ERROR(Place());
    QUIRE_RETURN_IF_ERROR(WritePlaced(folder_, before_, now_));
    pulled.path = HasWeights() ? ModelIn(folder_) : "";
    if (pulled.path.empty()) {
      return absl::NotFoundError(
          AbslView(source_.text + ": has no model that Quire reads: at the top of its archives "
                                  "there is no config.json with .safetensors, and no .gguf file"));
    }
    QUIRE_RETURN_IF_ERROR(NoteSource(source_, folder_));
    return pulled;
  }

 private:
  void SayWhatIsUnused(const OciPlan& plan) const {
    std::string list;
    for (const std::string& one : plan.unused) list += (list.empty() ? "" : "; ") + one;
    if (!list.empty()) options_.on_note("of this artifact, Quire does not use: " + list);
  }

  // Where the layer arrives: a file has its name at once.
  std::string ArrivalOf(const OciPiece& piece) const {
    return folder_ + "/" + (piece.path.empty() ? ".layer-" + piece.layer.digest : piece.path);
  }

  absl::Status Want(const OciPiece& piece) {
    const std::vector<PlacedFile> there = StillThere(folder_, before_, piece.layer.digest);
    for (const PlacedFile& one : there) {
      if (piece.path.empty() || one.path == piece.path) now_.push_back(one);
    }
    const bool is_placed = std::any_of(there.begin(), there.end(), [&](const PlacedFile& one) {
      return piece.path.empty() || one.path == piece.path;
    });
    if (is_placed) return absl::OkStatus();
    pieces_.push_back(piece);
    const std::string path = ArrivalOf(piece);
    QUIRE_RETURN_IF_ERROR(MakeFolder(fs::path(path).parent_path()));
    if (HasContent(path, piece.layer.size, piece.layer.digest)) return absl::OkStatus();
    FileJob job;
    job.name = piece.path.empty() ? "layer " + piece.layer.digest.substr(0, 12) : piece.path;
    QUIRE_ASSIGN_OR_RETURN(job.address, registry_.BlobAddress(piece.layer));
    job.size = piece.layer.size;
    job.digest_kind = DigestKind::kSha256;
    job.digest = piece.layer.digest;
    job.identity = piece.layer.digest;
    job.final_path = path;
    job.part_path = path + ".quire-part";
    if (job.size > 0) {
      jobs_.push_back(std::move(job));
      return absl::OkStatus();
    }
    if (piece.layer.digest != Sha256Hex("")) {
      return absl::DataLossError(AbslView(job.name + ": is empty, and its digest is another's"));
    }
    return std::ofstream(path).good() ? absl::OkStatus()
                                      : absl::UnavailableError(AbslView(path + ": not writable"));
  }

  // Registries give tokens for minutes, and a model may take hours.
  absl::StatusOr<FetchTotals> FetchAll() {
    std::sort(jobs_.begin(), jobs_.end(), [](const FileJob& a, const FileJob& b) {
      return std::tie(a.size, a.name) < std::tie(b.size, b.name);
    });
    FetchTotals all;
    int64_t first = -1, here = 0, done = 0, at_renewal = -1;
    FetchOptions fetch = FetchOptionsOf(options_);
    fetch.denied_advice = registry_.DeniedAdvice();
    fetch.on_progress = [&](int64_t now, int64_t total) {
      if (first < 0) first = now;
      here = now;
      if (options_.on_progress) options_.on_progress(done + now, done + total);
    };
    while (true) {
      for (FileJob& job : jobs_) {
        job.headers.clear();
        const std::string& authorization = registry_.authorization();
        if (!authorization.empty()) job.headers.emplace_back("Authorization", authorization);
      }
      const absl::StatusOr<FetchTotals> totals = Fetch(jobs_, fetch);
      if (totals.ok()) {
        all.fetched_bytes += totals->fetched_bytes;
        all.retries += totals->retries;
        return all;
      }
      const bool is_old = absl::IsPermissionDenied(totals.status()) &&
                          !registry_.authorization().empty() && done + here > at_renewal;
      if (!is_old) return totals.status();
      at_renewal = done + here;
      all.fetched_bytes += here - std::max<int64_t>(first, 0);
      std::erase_if(jobs_, [&](const FileJob& job) {
        if (!HasContent(job.final_path, job.size, job.digest)) return false;
        done += job.size;
        return true;
      });
      first = -1;
      here = 0;
      QUIRE_RETURN_IF_ERROR(registry_.Renew());
    }
  }

  // Notes the files that have come, and takes those of archives out of them.
  absl::Status Place() {
    for (const OciPiece& piece : pieces_) {
      if (!piece.path.empty()) now_.push_back({piece.layer.digest, piece.layer.size, piece.path});
    }
    std::set<std::string> paths;
    for (const PlacedFile& one : now_) paths.insert(one.path);
    for (const OciPiece& piece : pieces_) {
      if (!piece.path.empty()) continue;
      const std::string archive = ArrivalOf(piece);
      const absl::StatusOr<std::vector<TarFile>> files =
          UnpackModel(archive, folder_, paths, *options_.cancelled);
      std::error_code error;
      if (!absl::IsCancelled(files.status())) fs::remove(archive, error);
      if (!files.ok()) return Annotate(files.status(), source_.text);
      for (const TarFile& file : *files) {
        paths.insert(file.path);
        now_.push_back({piece.layer.digest, file.size, file.path});
      }
    }
    return absl::OkStatus();
  }

  bool HasWeights() const {
    return std::any_of(now_.begin(), now_.end(),
                       [](const PlacedFile& one) { return IsWeight(one.path); });
  }

  const Source& source_;
  const PullOptions& options_;
  HttpSession session_;
  OciRegistry registry_;
  const std::string folder_;
  std::vector<PlacedFile> before_, now_;
  std::vector<OciPiece> pieces_;  // that are not placed yet
  std::vector<FileJob> jobs_;
};

}  // namespace

absl::StatusOr<Pulled> PullFromRegistry(const Source& source, const PullOptions& options) {
  return OciPull(source, options).Run();
}

}  // namespace quire::pull
