#include "cli/pull/download.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "cli/pull/download_state.h"

namespace quire::pull {
namespace {

constexpr int64_t kSpareBytes = 64 << 20;
constexpr int64_t kFirstWaitMs = 250;
constexpr int64_t kLongestBackoffMs = 8000;
constexpr size_t kHashBytes = 1u << 20;

using Serving = FileState::Serving;

// "bytes FIRST-LAST/TOTAL" is the range that was asked for, of a file of that size.
bool IsRange(std::string_view header, int64_t first, int64_t last, int64_t total) {
  return header == "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                       std::to_string(total);
}

absl::Status RefusalOf(const Reply& head, const std::string& denied_advice) {
  const std::string said = "the server answers with status " + std::to_string(head.status);
  switch (head.status) {
    case 401:
    case 403:
      return absl::PermissionDeniedError(AbslView(said + ": " + denied_advice));
    case 404:
    case 410:
      return absl::NotFoundError(AbslView(said + ": there is no such file"));
    case 412:
    case 416:
      return absl::DataLossError(AbslView(said + ": the file has become another one"));
    default:
      return absl::UnavailableError(AbslView(said));
  }
}

// How long a busy server asks to wait; -1: it does not say.
int64_t RetryAfterMs(const Reply& head) {
  const std::string_view text = head.Header("retry-after");
  int64_t seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return -1;
  return std::min(seconds, kMaxWaitMs / 1000) * 1000;
}

// One connection's thread: takes chunks until there are none.
class ChunkFetcher {
 public:
  ChunkFetcher(const FetchOptions& options, DownloadState& state)
      : options_(options),
        state_(state),
        hub_(options.authorities, options.reach, *options.cancelled),
        storage_(options.authorities, options.reach, *options.cancelled) {}

  void Run() {
    while (const std::optional<Claim> claim = state_.Next()) {
      wait_ms_ = -1;
      const int64_t before = claim->file->part->Done(claim->chunk);
      absl::Status status = FetchChunk(*claim);
      if (status.ok()) {
        state_.Complete(*claim);
        tries_ = 0;
        continue;
      }
      tries_ = claim->file->part->Done(claim->chunk) > before ? 1 : tries_ + 1;
      if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) tries_ = kMaxTries;
      if (tries_ >= kMaxTries) {
        state_.Fail(Annotate(status, claim->file->job->name));
        return;
      }
      state_.PutBack(*claim);
      state_.CountRetry();
      const int64_t backoff = std::min(kFirstWaitMs << (tries_ - 1), kLongestBackoffMs);
      if (!state_.Sleep(wait_ms_ >= 0 ? wait_ms_ : backoff)) return;
    }
  }

 private:
  absl::Status FetchChunk(const Claim& claim) {
    FileState& file = *claim.file;
    const int64_t first = file.part->Begin(claim.chunk) + file.part->Done(claim.chunk);
    const int64_t last = file.part->End(claim.chunk) - 1;
    Request request;
    last_status_ = 0;
    request.headers = {{"Range", "bytes=" + std::to_string(first) + "-" + std::to_string(last)}};
    absl::Status refused;
    const TakeHead take_head = [&](const Reply& head) -> TakeBytes {
      last_status_ = head.status;
      if (head.status == 206 &&
          IsRange(head.Header("content-range"), first, last, file.part->size())) {
        state_.SetServing(file, Serving::kRanges);
        return [&](std::string_view bytes) { return Take(file, claim.chunk, bytes); };
      }
      if (head.status == 206) {
        refused = absl::DataLossError("the server sends another part than it was asked for");
      } else if (head.status == 200) {
        return TakeWhole(file, head, refused);
      } else {
        refused = RefusalOf(head, options_.denied_advice);
        wait_ms_ = head.status == 429 || head.status == 503 ? RetryAfterMs(head) : -1;
      }
      // What an error's body says is of no use, and may have no end.
      return [&refused](std::string_view) { return refused; };
    };
    absl::StatusOr<Reply> reply = Ask(file, request, take_head, refused);
    QUIRE_RETURN_IF_ERROR(refused);
    return reply.status();
  }

  // Asks where the file's redirects ended the last time, and from its address on where that place
  // does not know it any more: such addresses are signed, and expire.
  absl::StatusOr<Reply> Ask(FileState& file, Request& request, const TakeHead& take_head,
                            absl::Status& refused) {
    if (const std::optional<Address> known = state_.LeadsTo(file)) {
      request.address = *known;
      absl::StatusOr<Reply> reply = storage_.Do(request, take_head);
      const bool is_elsewhere = last_status_ >= 300 && last_status_ < 500 && last_status_ != 429;
      if (!is_elsewhere) return reply;
      refused = absl::OkStatus();
      state_.SetLeadsTo(file, std::nullopt);
    }
    request.address = file.job->address;
    for (const auto& header : file.job->headers) request.headers.push_back(header);
    Address end;
    absl::StatusOr<Reply> reply = hub_.Follow(request, take_head, &end);
    if (reply.ok() && end.Origin() != file.job->address.Origin()) state_.SetLeadsTo(file, end);
    return reply;
  }

  absl::Status Take(FileState& file, int chunk, std::string_view bytes) {
    QUIRE_RETURN_IF_ERROR(file.part->Append(chunk, bytes));
    state_.Arrived(static_cast<int64_t>(bytes.size()));
    return state_.status();
  }

  // The server knows no ranges: the answer is the file from its start.
  TakeBytes TakeWhole(FileState& file, const Reply& head, absl::Status& refused) {
    if (head.length != file.part->size()) {
      refused = absl::DataLossError(
          AbslView("has " + std::to_string(head.length) + " bytes there, not the " +
                   std::to_string(file.part->size()) + " that were promised"));
      return [&refused](std::string_view) { return refused; };
    }
    state_.SetServing(file, Serving::kWhole);
    return [this, &file, chunk = 0](std::string_view bytes) mutable -> absl::Status {
      while (!bytes.empty()) {
        const int64_t room =
            file.part->End(chunk) - file.part->Begin(chunk) - file.part->Done(chunk);
        const std::string_view part = bytes.substr(0, static_cast<size_t>(room));
        QUIRE_RETURN_IF_ERROR(Take(file, chunk, part));
        bytes.remove_prefix(part.size());
        if (!bytes.empty()) ++chunk;
      }
      return absl::OkStatus();
    };
  }

  const FetchOptions& options_;
  DownloadState& state_;
  HttpSession hub_, storage_;
  int last_status_ = 0;  // 0: there was no answer
  int tries_ = 0;
  int64_t wait_ms_ = -1;
};

// Hashes each file behind its download, and gives it its name.
class Finisher {
 public:
  explicit Finisher(DownloadState& state) : state_(state) {}

  void Run() {
    for (FileState& file : state_.files()) {
      const absl::Status status = Finish(file);
      if (absl::IsCancelled(status)) return;
      if (!status.ok()) return state_.Fail(Annotate(status, file.job->name));
      state_.Finish(file);
    }
  }

 private:
  absl::Status Finish(FileState& file) {
    PartFile& part = *file.part;
    std::string buffer(kHashBytes, '\0');
    while (true) {
      const int generation = part.generation();
      Digest digest(file.job->digest_kind, part.size());
      int64_t hashed = 0;
      while (hashed < part.size() && part.generation() == generation) {
        if (!state_.AwaitMore(file, hashed, generation)) return absl::CancelledError("");
        const int64_t most = std::min<int64_t>(part.Prefix() - hashed, kHashBytes);
        if (most <= 0) continue;  // it began again
        QUIRE_ASSIGN_OR_RETURN(const size_t count,
                               part.Read(hashed, buffer.data(), static_cast<size_t>(most)));
        digest.Add(std::string_view(buffer.data(), count));
        hashed += static_cast<int64_t>(count);
      }
      if (part.generation() != generation) continue;
      const std::string found = digest.Finish();
      if (file.job->digest_kind == DigestKind::kNone || found == file.job->digest) break;
      part.Remove();
      return absl::DataLossError(AbslView("has the digest " + found + ", not the " +
                                          file.job->digest +
                                          " that was promised; it is thrown away"));
    }
    return part.MoveTo(file.job->final_path);
  }

  DownloadState& state_;
};

}  // namespace

absl::Status CheckRoom(const std::string& folder, int64_t bytes) {
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0) return absl::ErrnoToStatus(errno, AbslView(folder));
  const auto free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (free >= static_cast<double>(bytes) + static_cast<double>(kSpareBytes)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(AbslView(
      folder + ": " + std::to_string(bytes >> 20) + " MiB are still to come, and the disk has " +
      std::to_string(static_cast<int64_t>(free) >> 20) +
      " MiB free; HF_HUB_CACHE, or XDG_CACHE_HOME for models that come from elsewhere than a hub, "
      "names a folder on another one, and `quire rm NAME` makes room"));
}

absl::StatusOr<FetchTotals> Fetch(const std::vector<FileJob>& files, const FetchOptions& options) {
  DownloadState state(options);
  QUIRE_RETURN_IF_ERROR(state.Open(files));
  if (files.empty()) return state.totals();
  const std::string& path = files.front().part_path;
  QUIRE_RETURN_IF_ERROR(CheckRoom(path.substr(0, path.rfind('/')), state.BytesToCome()));
  std::vector<std::thread> threads;
  threads.emplace_back([&state] { Finisher(state).Run(); });
  const int connections = std::clamp(options.connections, 1, kMaxConnections);
  for (int i = 0; i < connections; ++i) {
    threads.emplace_back([&] { ChunkFetcher(options, state).Run(); });
  }
  state.Watch();
  for (std::thread& thread : threads) thread.join();
  QUIRE_RETURN_IF_ERROR(state.status());
  return state.totals();
}

}  // namespace quire::pull
