#include "router/front/http2_pump_asio.h"

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kPumpChunkBytes = 32u << 10;
constexpr int kMaxStepsPerTurn = 8;  // then other connections have their turn

bool MustWait(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again ||
         error == asio::error::interrupted;
}

}  // namespace

Http2Pump::Http2Pump(Socket client, Socket inner, const Options& options,
                     std::function<void()> on_closed)
    : client_(std::move(client)),
      inner_(std::move(inner)),
      executor_(options.executor),
      abandoned_(options.abandoned),
      counters_(options.counters),
      log_(options.log),
      max_streams_(options.limits.max_streams),
      guard_(options.limits, options.executor.clock().Now()),
      on_closed_(std::move(on_closed)),
      to_grpc_{client_, inner_, true, {}, 0, false},
      to_client_{inner_, client_, false, {}, 0, false} {}

void Http2Pump::Start(std::string first_bytes) {
  error_code ignored;
  client_.non_blocking(true, ignored);
  inner_.non_blocking(true, ignored);
  suspect_ = abandoned_.UntilPositive(executor_.clock().Now()) > 0;
  if (!Inspect(first_bytes)) return;
  to_grpc_.pending = std::move(first_bytes);
  Step(to_grpc_);
  if (!closed_) Step(to_client_);
}

void Http2Pump::Close() {
  if (closed_) return;
  closed_ = true;
  if (pause_timer_ != 0) executor_.Cancel(pause_timer_);
  pause_timer_ = 0;
  DebitOpenStreams();
  error_code ignored;
  client_.close(ignored);
  inner_.close(ignored);
  if (on_closed_) on_closed_();
  on_closed_ = nullptr;
}

bool Http2Pump::Inspect(std::string_view bytes) {
  const Micros now = executor_.clock().Now();
  const char* limit = guard_.Inspect(bytes, now);
  if (guard_.resets_seen() > resets_debited_) {
    suspect_ = true;
    abandoned_.Debit(static_cast<double>(guard_.resets_seen() - resets_debited_), now);
    resets_debited_ = guard_.resets_seen();
  }
  const uint64_t ended = streams_finished_ + guard_.resets_seen();
  if (guard_.streams_opened() > ended + max_streams_) counters_.http2_streams_over_limit.Add();
  counters_.grpc_messages_too_large.Add(guard_.messages_too_large() - messages_too_large_);
  messages_too_large_ = guard_.messages_too_large();
  if (limit == nullptr) return true;
  log_.Info("an HTTP/2 connection went past a limit and is closed", {{"limit", limit}});
  counters_.http2_guard_closed.at(limit)->Add();
  asio::post(client_.get_executor(), [self = shared_from_this()] { self->Close(); });
  to_grpc_.ended = to_client_.ended = true;
  return false;
}

// When the client ends, and before gRPC answers to that: it writes the end of every stream then,
// and frees them later.
void Http2Pump::DebitOpenStreams() {
  if (open_debited_) return;
  open_debited_ = true;
  const uint64_t ended = streams_finished_ + resets_debited_;
  if (guard_.streams_opened() <= ended) return;
  abandoned_.Debit(static_cast<double>(guard_.streams_opened() - ended), executor_.clock().Now());
}

bool Http2Pump::Paused() {
  if (!suspect_) return false;
  if (pause_timer_ != 0) return true;
  const Micros now = executor_.clock().Now();
  const Micros wait = abandoned_.UntilPositive(now);
  if (wait == 0) return false;
  counters_.http2_pauses.Add();
  pause_timer_ = executor_.PostAt(now + wait, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->pause_timer_ = 0;
    self->Step(self->to_grpc_);
  });
  return true;
}

// A stream has ended when gRPC sends its trailers or resets it. What is sent earns the client its
// pings before it leaves.
void Http2Pump::CountFinished(std::string_view bytes) {
  Http2Frame frame;
  while (answers_.Next(bytes, frame)) {
    guard_.Sent(frame);
    const bool trailers =
        frame.type == Http2Frame::kHeaders && (frame.flags & Http2Frame::kEndStream) != 0;
    if (trailers || frame.type == Http2Frame::kRstStream) ++streams_finished_;
  }
}

void Http2Pump::Wait(Direction& direction, Socket& socket, bool for_read) {
  socket.async_wait(for_read ? Socket::wait_read : Socket::wait_write,
                    [self = shared_from_this(), &direction](const error_code& error) {
                      if (self->closed_) return;
                      if (error) {
                        self->Close();
                      } else {
                        self->Step(direction);
                      }
                    });
}

bool Http2Pump::Flush(Direction& direction) {
  while (direction.offset < direction.pending.size()) {
    error_code error;
    direction.offset +=
        direction.to.write_some(asio::buffer(direction.pending.data() + direction.offset,
                                             direction.pending.size() - direction.offset),
                                error);
    if (MustWait(error)) {
      Wait(direction, direction.to, false);
      return false;
    }
    if (error) {
      Close();
      return false;
    }
  }
  direction.pending = std::string();
  direction.offset = 0;
  return true;
}

// At once, from where it was read to; only what has no room now is kept.
bool Http2Pump::Forward(Direction& direction, std::string_view bytes) {
  error_code error;
  const size_t written = direction.to.write_some(asio::buffer(bytes.data(), bytes.size()), error);
  if (error && !MustWait(error)) {
    Close();
    return false;
  }
  direction.pending.assign(bytes.substr(written));
  return true;
}

bool Http2Pump::Fill(Direction& direction) {
  if (direction.inspected && Paused()) return false;
  char buffer[kPumpChunkBytes];
  error_code error;
  const size_t bytes = direction.from.read_some(asio::buffer(buffer), error);
  if (MustWait(error)) {
    Wait(direction, direction.from, true);
    return false;
  }
  if (error) {
    direction.ended = true;
    if (direction.inspected) DebitOpenStreams();
    ::shutdown(direction.to.native_handle(), SHUT_WR);
    if (error != asio::error::eof || (to_grpc_.ended && to_client_.ended)) Close();
    return false;
  }
  if (direction.inspected) {
    if (!Inspect({buffer, bytes})) return false;
  } else {
    CountFinished({buffer, bytes});
  }
  if (!Forward(direction, {buffer, bytes})) return false;
  if (!direction.pending.empty() || bytes == sizeof(buffer) || suspect_) return true;
  // A read that has not filled its buffer has emptied the socket: another one would find nothing.
  Wait(direction, direction.from, true);
  return false;
}

void Http2Pump::Step(Direction& direction) {
  for (int step = 0; step < kMaxStepsPerTurn; ++step) {
    if (closed_ || direction.ended) return;
    if (!Flush(direction) || !Fill(direction)) return;
  }
  asio::post(client_.get_executor(),
             [self = shared_from_this(), &direction] { self->Step(direction); });
}

}  // namespace quire
