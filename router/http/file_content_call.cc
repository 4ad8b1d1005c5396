#include "router/http/file_content_call.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "router/batches/service.h"
#include "router/http/errors.h"

namespace quire {
namespace {

constexpr Micros kBusyPause = kMicrosPerSecond / 5;  // while too much waits for the disk

// False: the disk fails, or the file has been deleted.
bool ReadPiece(int fd, int64_t at, size_t bytes, std::string& piece) {
  size_t have = 0;
  piece.resize(bytes);
  while (have < piece.size()) {
    const ssize_t count =
        pread(fd, piece.data() + have, piece.size() - have, at + static_cast<int64_t>(have));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    have += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

std::unique_ptr<Call> FileContentCall::Begin(HttpServices& services, HttpRequest request,
                                             std::string id, Exchange& exchange) {
  std::unique_ptr<FileContentCall> call(
      new FileContentCall(services, std::move(request), exchange));
  call->Open(id);
  if (call->ended_) return nullptr;
  return call;
}

void FileContentCall::Open(const std::string& id) {
  struct Opened {
    Result<std::shared_ptr<batches::Descriptor>> file = ApiError{};
    absl::StatusOr<int64_t> bytes;
  };
  const auto opened = std::make_shared<Opened>();
  batches::Service& batches = *services_.batches;
  const std::string tenant = NameOf(request_.tenant);
  const bool taken = batches.disk.RunFor(
      {tenant, 0, cancelled_},
      [opened, id, tenant, &store = batches.store] {
        opened->file = store.Contents(tenant, id);
        if (opened->file.ok()) opened->bytes = batches::BytesOf(*opened->file.value());
      },
      [this, alive = alive_, opened] {
        if (!*alive) return;
        if (!opened->file.ok()) return exchange_.Reply(ErrorResponse(opened->file.error()));
        if (!opened->bytes.ok()) {
          return exchange_.Reply(ErrorResponse(ErrorFromStatus(opened->bytes.status(), "")));
        }
        if (request_.method == "HEAD") {
          HttpResponse response;
          response.content_type = "application/octet-stream";
          return exchange_.Reply(std::move(response));
        }
        file_ = opened->file.value();
        bytes_ = *opened->bytes;
        exchange_.StartStream(200, "application/octet-stream", {});
        ReadOn();
      });
  if (taken) return;
  ended_ = true;
  exchange_.Reply(ErrorResponse(TooManyLargeRequests()));
}

void FileContentCall::ReadOn() {
  if (reading_ || ended_) return;
  struct Piece {
    std::string bytes;
    bool ok = false;
  };
  const auto piece = std::make_shared<Piece>();
  const size_t bytes = std::min(kPieceBytes, static_cast<size_t>(bytes_ - at_));
  reading_ = services_.batches->disk.RunFor(
      {NameOf(request_.tenant), kPieceBytes, cancelled_},
      [piece, file = file_, at = at_, bytes] {
        piece->ok = ReadPiece(file->get(), at, bytes, piece->bytes);
      },
      [this, alive = alive_, piece] {
        if (*alive) Sent(piece->bytes, piece->ok);
      });
  if (!reading_) retry_timer_.SetIn(kBusyPause, [this] { ReadOn(); });
}

void FileContentCall::Sent(const std::string& piece, bool ok) {
  reading_ = false;
  if (!ok) {
    ended_ = true;
    return exchange_.Abort();
  }
  at_ += static_cast<int64_t>(piece.size());
  ended_ = at_ >= bytes_;
  queued_ = exchange_.Write(piece);
  if (ended_) exchange_.EndStream();
}

void FileContentCall::OnWritten(uint64_t total) {
  if (file_ != nullptr && total >= queued_) ReadOn();
}

}  // namespace quire
