#include "common/grpc/socket_asio.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include <cerrno>
#include <utility>

#include "common/check.h"
#include "common/runtime/must_wait_asio.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kReadChunkBytes = 64u << 10;
constexpr size_t kMaxOutBytes = 64u << 10;
constexpr size_t kKeptOutBytes = 16u << 10;  // by a socket that has nothing to send
constexpr int kMaxStepsPerTurn = 16;         // then other connections have their turn

}  // namespace

GrpcSocket::GrpcSocket(Socket socket, GrpcHost& host, const GrpcMethods& methods,
                       std::function<void()> on_closed)
    : socket_(std::move(socket)),
      host_(host),
      on_closed_(std::move(on_closed)),
      connection_(host, methods, *this),
      out_memory_(connection_.memory()) {}

GrpcSocket::~GrpcSocket() { QUIRE_CHECK(closed_); }

void GrpcSocket::Start(std::string_view first_bytes) {
  error_code ignored;
  socket_.non_blocking(true, ignored);
  connection_.Start();
  connection_.Receive(first_bytes);
  Read();
}

// Waits without a buffer, so that an idle connection costs no memory.
void GrpcSocket::Read() {
  if (closed_ || connection_.behind() || std::exchange(reading_, true)) return;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->reading_ = false;
    self->OnReadable(error);
  });
}

void GrpcSocket::OnReadable(const error_code& wait_error) {
  if (closed_) return;
  error_code error = wait_error;
  char buffer[kReadChunkBytes];
  size_t bytes = 0;
  if (!error) bytes = socket_.read_some(asio::buffer(buffer), error);
  if (error && !MustWait(error)) return Close();
  if (lingering_) {
    lingered_bytes_ += bytes;
    if (lingered_bytes_ > host_.limits.max_linger_bytes) return Close();
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
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Flush(); });
}

bool GrpcSocket::Write() {
  const size_t left = out_.size() - written_;
  const ssize_t sent =
      ::send(socket_.native_handle(), out_.data() + written_, left, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    Close();
    return false;
  }
  if (sent > 0) {
    written_ += static_cast<size_t>(sent);
    connection_.Written(static_cast<size_t>(sent));
  }
  if (sent == static_cast<ssize_t>(left)) return !closed_;
  AwaitRoom();
  return false;
}

void GrpcSocket::AwaitRoom() {
  awaiting_room_ = true;
  out_memory_.Resize(out_.capacity());
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
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

// A close on bytes that were not read would reset the connection, and might take from the client
// why it ended.
void GrpcSocket::Linger() {
  lingering_ = true;
  connection_.Close();
  Read();
  ::shutdown(socket_.native_handle(), SHUT_WR);
  Executor& executor = host_.executor;
  linger_timer_ = executor.PostAt(executor.clock().Now() + host_.limits.linger_timeout, [this] {
    linger_timer_ = 0;
    Close();
  });
}

void GrpcSocket::CancelCalls(const absl::Status& status) {
  connection_.CancelCalls(status);
  Flush();
  Close();
}

void GrpcSocket::Close() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();  // on_closed_ may drop the owner's reference
  if (linger_timer_ != 0) host_.executor.Cancel(std::exchange(linger_timer_, 0));
  error_code ignored;
  socket_.close(ignored);
  connection_.Close();
  if (on_closed_) std::exchange(on_closed_, nullptr)();
}

}  // namespace quire
