#include "common/grpc/socket_asio.h"

#include <boost/asio/post.hpp>

#include <utility>

#include "common/check.h"
#include "common/runtime/must_wait_asio.h"

namespace quire {
namespace {

using Error = EdgeStream::Error;

constexpr size_t kReadChunkBytes = 64u << 10;
constexpr size_t kMaxOutBytes = 64u << 10;
constexpr size_t kKeptOutBytes = 16u << 10;  // by a socket that has nothing to send
constexpr int kMaxStepsPerTurn = 16;         // then other connections have their turn

}  // namespace

GrpcSocket::GrpcSocket(EdgeStream stream, GrpcHost& host, const GrpcMethods& methods,
                       std::shared_ptr<ClientSeat> seat, std::function<void()> on_closed)
    : stream_(std::move(stream)),
      host_(host),
      seat_(std::move(seat)),
      on_closed_(std::move(on_closed)),
      connection_(host, methods, *this),
      out_memory_(connection_.memory()) {
  connection_.Sit(seat_);
  seat_->at_work = [this] { return connection_.at_work(); };
}

GrpcSocket::~GrpcSocket() { QUIRE_CHECK(closed_); }

void GrpcSocket::Start(std::string_view first_bytes) {
  connection_.Start();
  connection_.Receive(first_bytes);
  Read();
}

// Waits without a buffer, so that an idle connection costs no memory.
void GrpcSocket::Read() {
  if (closed_ || connection_.behind() || std::exchange(reading_, true)) return;
  stream_.AwaitBytes([self = shared_from_this()](const Error& error) {
    self->reading_ = false;
    self->OnReadable(error);
  });
}

void GrpcSocket::OnReadable(const Error& wait_error) {
  if (closed_) return;
  Error error = wait_error;
  char buffer[kReadChunkBytes];
  size_t bytes = 0;
  if (!error) bytes = stream_.Read(buffer, sizeof(buffer), error);
  const bool ended = error && !MustWait(error);
  if (ended && bytes == 0) return Close();
  if (lingering_) {
    lingered_bytes_ += bytes;
    if (lingered_bytes_ > host_.limits.max_linger_bytes) {
      host_.counters.lingers_cut.Add();
      return Close();
    }
  } else if (bytes > 0) {
    connection_.Receive({buffer, bytes});
  }
  Read();
}

void GrpcSocket::WantsToSend() {
  host_.Flush([self = shared_from_this()] { self->Flush(); });
}

void GrpcSocket::Flush() {
  if (closed_ || lingering_ || awaiting_room_) return;
  for (int step = 0; step < kMaxStepsPerTurn; ++step) {
    if (written_ == out_.size()) {
      out_.clear();
      written_ = 0;
      connection_.Send(out_, kMaxOutBytes);
      if (out_.empty()) {
        if (out_.capacity() > kKeptOutBytes) out_.shrink_to_fit();
        return CloseIfOver();
      }
    }
    if (!Write()) return;
  }
  boost::asio::post(stream_.get_executor(), [self = shared_from_this()] { self->Flush(); });
}

bool GrpcSocket::Write() {
  Error error;
  const size_t sent = stream_.Write(std::string_view(out_).substr(written_), error);
  if (error && !MustWait(error)) {
    Close();
    return false;
  }
  if (sent > 0) {
    written_ += sent;
    connection_.Written(sent);
  }
  if (!error) return !closed_;
  AwaitRoom();
  return false;
}

void GrpcSocket::AwaitRoom() {
  awaiting_room_ = true;
  out_memory_.Resize(out_.capacity());
  stream_.AwaitRoom([self = shared_from_this()](const Error& error) {
    self->awaiting_room_ = false;
    self->out_memory_.Resize(0);
    if (self->closed_) return;
    if (error) return self->Close();
    self->Flush();
  });
}

void GrpcSocket::CloseIfOver() {
  if (connection_.over()) Linger();
}

// A close with unread bytes would reset the connection, and the client might lose the reason why it
// ended.
void GrpcSocket::Linger() {
  lingering_ = true;
  connection_.Close();
  Read();
  stream_.EndWriting();
  linger_timer_.SetIn(host_.limits.linger_timeout, [this] { Close(); });
}

void GrpcSocket::CancelCalls(const absl::Status& status) {
  connection_.CancelCalls(status);
  Flush();
  Close();
}

void GrpcSocket::Close() {
  if (closed_) return;
  closed_ = true;
  seat_->at_work = nullptr;
  const auto self = shared_from_this();  // on_closed_ may drop the owner's reference
  linger_timer_.Stop();
  stream_.Close();
  connection_.Close();
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

}  // namespace quire
