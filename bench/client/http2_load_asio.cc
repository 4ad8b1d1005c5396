// gRPC calls on one thread, over the HTTP/2 sessions of the router's own calls to workers. A
// streamed call of gRPC's library takes more of the callers' core than a router takes of its own:
// many of them would measure the callers.
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/client/loop_load_asio.h"
#include "common/http2/grpc_framing.h"
#include "common/http2/session.h"
#include "quire/v1/inference.pb.h"

namespace quire::bench {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using http2::StreamId;
using tcp = asio::ip::tcp;

constexpr size_t kHttp2ReadBytes = 64u << 10;
constexpr size_t kMaxMessageBytes = 16u << 20;

class Http2Load;

struct Http2Call {
  uint64_t seed = 0;
  int cancel_after = -1;
  int64_t begun_at = 0;
  http2::MessageReader reader{kMaxMessageBytes};
  absl::Status status = absl::UnavailableError("the stream ended without a status");
  bool usage_seen = false;
  Outcome outcome = {};
};

// A connection and the calls that are on it.
class Channel final : public http2::Handler {
 public:
  Channel(Http2Load& load, asio::io_context& context);
  void Begin(int64_t number);

 private:
  void OnHeaders(StreamId stream, const http2::HeaderBlock& block) override;
  void OnData(StreamId stream, std::string_view bytes) override;
  void OnClosed(StreamId stream, http2::ErrorCode code) override;

  bool Take(Http2Call& call, std::string_view message);
  void TakeEvent(Http2Call& call, const v1::GenerateResponse& event);
  // The call is given up where its time has come.
  void CancelAt(StreamId stream, Http2Call& call);
  void End(Http2Call call);
  void Read();
  void FlushLater();
  void Flush();
  void Break(const std::string& why);
  void KeepAlive();

  Http2Load& load_;
  const LoadOptions& options_;
  asio::io_context& context_;
  tcp::socket socket_;
  asio::steady_timer keep_alive_;
  http2::Session session_;
  std::unordered_map<StreamId, Http2Call> calls_;
  std::string request_;  // the bytes of one, while it is written
  std::string out_;      // being written
  bool flush_posted_ = false;
  bool writing_ = false;
  std::string broken_;  // why
  std::vector<char> buffer_ = std::vector<char>(kHttp2ReadBytes);
};

class Http2Load final : public LoopLoad {
 public:
  Http2Load(const LoadOptions& load_options, Tally& counts) : LoopLoad(load_options, counts) {
    for (int32_t i = 0; i < options.channels; ++i) {
      channels_.push_back(std::make_unique<Channel>(*this, context_));
    }
    StartThread();
  }
  ~Http2Load() override { StopThread(); }

  void Ended(const Outcome& outcome) {
    if (options.rate == 0) Next();
    tally.Count(outcome);
  }

 private:
  void BeginCall(int64_t number) override {
    channels_[static_cast<size_t>(number) % channels_.size()]->Begin(number);
  }

  std::vector<std::unique_ptr<Channel>> channels_;
};

http2::Settings ClientSettings() {
  http2::Settings settings;
  settings.stream_window_bytes = settings.connection_window_bytes = 4u << 20;  // as gRPC's clients
  return settings;
}

Channel::Channel(Http2Load& load, asio::io_context& context)
    : load_(load),
      options_(load.options),
      context_(context),
      socket_(context),
      keep_alive_(context),
      session_(http2::Session::Side::kClient, ClientSettings(), *this) {
  error_code error;
  socket_.connect(load.endpoint, error);
  if (error) {
    broken_ = error.message();
    return;
  }
  socket_.set_option(tcp::no_delay(true), error);
  FlushLater();
  Read();
  if (options_.keepalive_ms > 0) KeepAlive();
}

void Channel::KeepAlive() {
  keep_alive_.expires_after(std::chrono::milliseconds(options_.keepalive_ms));
  keep_alive_.async_wait([this](const error_code& error) {
    if (error || !broken_.empty()) return;
    session_.Ping(1);
    FlushLater();
    KeepAlive();
  });
}

std::string RequestOf(const LoadOptions& options, uint64_t seed) {
  if (options.unary) {
    v1::TokenizeRequest request;
    request.set_model(options.model);
    request.set_text(std::string(static_cast<size_t>(2 * options.prompt_tokens), 'a'));
    return request.SerializeAsString();
  }
  v1::GenerateRequest request;
  request.set_model(options.model);
  const std::vector<int32_t> prompt = PromptOf(options, seed);
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_seed(seed);
  request.mutable_sampling()->set_max_tokens(options.max_tokens);
  request.mutable_sampling()->set_ignore_eos(true);
  request.set_omit_text(true);
  request.set_joined_events(true);
  return request.SerializeAsString();
}

void Channel::Begin(int64_t number) {
  Http2Call call;
  call.seed = static_cast<uint64_t>(options_.first_seed + number);
  call.cancel_after = options_.unary ? -1 : CancelAfter(options_, number);
  call.begun_at = SteadyMicros();
  const std::string timeout = http2::PrintTimeout(int64_t{options_.timeout_s} * 1'000'000);
  const std::string_view method = options_.unary ? "Tokenize" : "Generate";
  const std::string path = "/quire.v1.Inference/" + std::string(method);
  const http2::Header headers[] = {{":method", "POST"},
                                   {":scheme", "http"},
                                   {":path", path},
                                   {":authority", options_.target},
                                   {"te", "trailers"},
                                   {"content-type", "application/grpc"},
                                   {"user-agent", "router_client"},
                                   {"grpc-accept-encoding", "identity"},
                                   {"grpc-timeout", timeout}};
  const StreamId stream = broken_.empty() ? session_.Open(headers) : 0;
  if (stream == 0) {
    call.status = absl::UnavailableError(AbslView(broken_));
    return End(std::move(call));
  }
  request_.clear();
  http2::AppendMessage(request_, RequestOf(options_, call.seed));
  session_.Write(stream, request_);
  session_.End(stream);
  Http2Call& begun = calls_.emplace(stream, std::move(call)).first->second;
  FlushLater();
  CancelAt(stream, begun);
}

void Channel::CancelAt(StreamId stream, Http2Call& call) {
  if (call.cancel_after < 0 || call.outcome.tokens < call.cancel_after) return;
  if (std::exchange(call.outcome.cancelled, true)) return;
  session_.Reset(stream, http2::ErrorCode::kCancel);
  FlushLater();
}

void Channel::OnHeaders(StreamId stream, const http2::HeaderBlock& block) {
  const auto found = calls_.find(stream);
  if (found == calls_.end() || !block.ends) return;
  found->second.status = http2::StatusOfTrailers(block.fields, 200);
  found->second.outcome.told_when = http2::Find(block.fields, "retry-after").has_value();
}

void Channel::OnData(StreamId stream, std::string_view bytes) {
  const size_t size = bytes.size();
  if (const auto found = calls_.find(stream); found != calls_.end()) {
    Http2Call& call = found->second;
    std::string_view message;
    while (call.reader.Next(bytes, message)) {
      if (!Take(call, message)) call.outcome.wrong = true;
    }
    if (!call.reader.status().ok()) call.outcome.wrong = true;
    CancelAt(stream, call);
  }
  session_.Consume(stream, size);
}

// False: it is none of the method's.
bool Channel::Take(Http2Call& call, std::string_view message) {
  const auto size = static_cast<int>(message.size());
  if (options_.unary) {
    v1::TokenizeResponse response;
    if (!response.ParseFromArray(message.data(), size)) return false;
    call.outcome.tokens = response.token_ids_size();
    return true;
  }
  v1::GenerateResponse event;
  if (!event.ParseFromArray(message.data(), size)) return false;
  TakeEvent(call, event);
  for (const v1::GenerateResponse& more : event.more()) TakeEvent(call, more);
  return true;
}

void Channel::TakeEvent(Http2Call& call, const v1::GenerateResponse& event) {
  call.usage_seen = call.usage_seen || event.has_usage();
  if (!event.has_delta()) return;
  const v1::Delta& delta = event.delta();
  Outcome& outcome = call.outcome;
  if (delta.first_index() != static_cast<uint64_t>(outcome.tokens)) outcome.wrong = true;
  const std::vector<int32_t> ids(delta.token_ids().begin(), delta.token_ids().end());
  if (outcome.Take(options_, call.seed, ids, call.begun_at)) load_.tally.Opened();
}

void Channel::OnClosed(StreamId stream, http2::ErrorCode) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  Http2Call call = std::move(found->second);
  calls_.erase(found);
  End(std::move(call));
}

void Channel::End(Http2Call call) {
  Outcome& outcome = call.outcome;
  outcome.status = std::to_string(static_cast<int>(call.status.code()));
  outcome.error = StatusMessage(call.status);
  outcome.ended_at_us = SteadyMicros();
  outcome.total_us = outcome.ended_at_us - call.begun_at;
  if (options_.unary) {
    outcome.first_us = outcome.total_us;
    outcome.complete = call.status.ok() && !outcome.wrong;
  } else {
    outcome.complete = call.status.ok() && call.usage_seen && !outcome.wrong &&
                       outcome.tokens == options_.max_tokens;
  }
  load_.Ended(outcome);
}

void Channel::Read() {
  socket_.async_read_some(asio::buffer(buffer_), [this](const error_code& error, size_t count) {
    if (error) return Break(error.message());
    const absl::Status status = session_.Receive({buffer_.data(), count});
    if (!status.ok()) return Break(StatusMessage(status));
    FlushLater();
    Read();
  });
}

// What is written in one turn leaves together.
void Channel::FlushLater() {
  if (!broken_.empty() || writing_ || std::exchange(flush_posted_, true)) return;
  asio::post(context_, [this] {
    flush_posted_ = false;
    Flush();
  });
}

void Channel::Flush() {
  if (!broken_.empty() || writing_) return;
  out_.clear();
  session_.Send(out_, kHttp2ReadBytes);
  if (out_.empty()) return;
  writing_ = true;
  asio::async_write(socket_, asio::buffer(out_), [this](const error_code& error, size_t) {
    writing_ = false;
    if (error) return Break(error.message());
    Flush();
  });
}

void Channel::Break(const std::string& why) {
  if (!broken_.empty()) return;
  broken_ = why;
  error_code ignored;
  socket_.close(ignored);
  for (auto& [stream, call] : std::exchange(calls_, {})) {
    call.status = absl::UnavailableError(AbslView(why));
    End(std::move(call));
  }
}

}  // namespace

std::unique_ptr<Load> MakeHttp2Load(const LoadOptions& options, Tally& tally) {
  return std::make_unique<Http2Load>(options, tally);
}

}  // namespace quire::bench
