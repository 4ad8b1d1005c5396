#include "common/http2/session.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "common/check.h"
#include "common/http2/session_state.h"
#include "common/release.h"

namespace quire::http2 {
namespace {

// nghttp2 sends no block of 64 KiB or more, by its own bound for the encoded size.
constexpr size_t kMostSentHeaderBytes = 48u << 10;

}  // namespace

void IncomingBlock::Clear() {
  for (nghttp2_rcbuf* buffer : held_) nghttp2_rcbuf_decref(buffer);
  constexpr size_t kKeptFields = 64;  // of most requests
  const bool large = fields_.capacity() > kKeptFields;
  held_.clear();
  fields_.clear();
  if (large) Release(held_);
  if (large) Release(fields_);
  bytes_ = 0;
  too_large_ = false;
}

std::optional<std::string_view> Find(Headers headers, std::string_view name) {
  for (const Header& header : headers) {
    if (header.name == name) return header.value;
  }
  return std::nullopt;
}

Session::Session(Side side, const Settings& settings, Handler& handler)
    : state_(std::make_unique<State>(side, settings, handler)) {
  state_->Begin();
}

Session::~Session() = default;

// ---- receiving

absl::Status Session::Receive(std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const ssize_t taken = nghttp2_session_mem_recv(state_->session, data, bytes.size());
  if (state_->stopped) {
    return absl::ResourceExhaustedError("headers that take too much to decode");
  }
  if (taken == NGHTTP2_ERR_FLOODED) {
    return absl::ResourceExhaustedError("too many HTTP/2 frames that do nothing");
  }
  if (taken < 0) {
    return InvalidArgument(std::string("no HTTP/2: ") + nghttp2_strerror(static_cast<int>(taken)));
  }
  if (nghttp2_session_get_outbound_queue_size(state_->session) >
      state_->settings.max_waiting_frames) {
    return absl::ResourceExhaustedError("too many HTTP/2 frames wait to be sent");
  }
  return absl::OkStatus();
}

void Session::ConsumeOfStream(StreamId stream, size_t bytes) {
  if (Stream* found = state_->GetLive(stream)) state_->ConsumeOfStream(*found, bytes);
}

void Session::ConsumeOfConnection(StreamId stream, size_t bytes) {
  if (Stream* found = state_->Get(stream)) state_->ConsumeOfConnection(*found, bytes);
}

void Session::Consume(StreamId stream, size_t bytes) {
  ConsumeOfStream(stream, bytes);
  ConsumeOfConnection(stream, bytes);
}

// ---- sending

void Session::Send(std::string& out, size_t most) {
  State& state = *state_;
  state.out = &out;
  state.out_most = most;
  while (out.size() < most) {
    state.paused = false;
    const uint8_t* data = nullptr;
    const ssize_t size = nghttp2_session_mem_send(state.session, &data);
    QUIRE_CHECK_MSG(size >= 0, "what is sent is our own");
    state.AppendFrame(ViewOf(data, static_cast<size_t>(size)));
    if (size == 0 && !state.paused) break;
  }
  state.out = nullptr;
  state.TellSent();
}

bool Session::wants_to_send() const { return nghttp2_session_want_write(state_->session) != 0; }

bool Session::over() const {
  return nghttp2_session_want_read(state_->session) == 0 && !wants_to_send();
}

// ---- streams

StreamId Session::Open(Headers request, bool ends) {
  QUIRE_CHECK(state_->side == Side::kClient);
  const uint32_t next = nghttp2_session_get_next_stream_id(state_->session);
  if (next > INT32_MAX) return 0;
  Stream& stream = state_->Add(next);
  stream.ended = ends;
  const nghttp2_data_provider body = State::BodyOf(stream);
  const Pairs pairs = PairsOf(request);
  const int32_t id = nghttp2_submit_request(state_->session, nullptr, pairs.data(), pairs.size(),
                                            ends ? nullptr : &body, nullptr);
  QUIRE_CHECK(id == Id(next));
  return next;
}

void Session::Respond(StreamId stream, Headers response) {
  Stream* found = state_->GetLive(stream);
  if (found == nullptr) return;
  QUIRE_CHECK(state_->side == Side::kServer && !found->responded);
  found->responded = true;
  const nghttp2_data_provider body = State::BodyOf(*found);
  const Pairs pairs = PairsOf(response);
  QUIRE_CHECK(
      nghttp2_submit_response(state_->session, Id(stream), pairs.data(), pairs.size(), &body) == 0);
}

void Session::RespondAndEnd(StreamId stream, Headers response) {
  Stream* found = state_->GetLive(stream);
  if (found == nullptr) return;
  QUIRE_CHECK(state_->side == Side::kServer && !found->responded);
  found->responded = found->ended = true;
  const Pairs pairs = PairsOf(response);
  QUIRE_CHECK(nghttp2_submit_response(state_->session, Id(stream), pairs.data(), pairs.size(),
                                      nullptr) == 0);
}

void Session::State::Resume(Stream& stream) const {
  if (!stream.deferred) return;
  stream.deferred = false;
  nghttp2_session_resume_data(session, Id(stream.id));
}

std::string& Session::State::BodyToWrite(Stream& stream) const {
  QUIRE_CHECK_MSG(!stream.ended && (side == Side::kClient || stream.responded),
                  "a body comes after its headers and before its end");
  return stream.body;
}

void Session::Write(StreamId stream, size_t size, absl::FunctionRef<void(char* at)> fill) {
  Stream* found = state_->GetLive(stream);
  if (found == nullptr || size == 0) return;
  std::string& body = state_->BodyToWrite(*found);
  const size_t at = body.size();
  body.resize(at + size);
  fill(body.data() + at);
  state_->Resume(*found);
}

void Session::Write(StreamId stream, std::string_view bytes) {
  Stream* found = state_->GetLive(stream);
  if (found == nullptr || bytes.empty()) return;
  state_->BodyToWrite(*found).append(bytes);
  state_->Resume(*found);
}

size_t Session::Queued(StreamId stream) const {
  const Stream* found = state_->Get(stream);
  return found == nullptr ? 0 : found->left();
}

void Session::State::SubmitTrailers(const Stream& stream) const {
  const Pairs pairs = stream.trailers.AsPairs();
  QUIRE_CHECK(nghttp2_submit_trailer(session, Id(stream.id), pairs.data(), pairs.size()) == 0);
}

void Session::State::EndBody(StreamId id, const Headers* trailers) {
  Stream* stream = GetLive(id);
  if (stream == nullptr || stream->ended) return;
  QUIRE_CHECK_MSG(side == Side::kClient || stream->responded, "an end comes after the headers");
  stream->ended = true;
  if (trailers != nullptr) {
    stream->has_trailers = true;
    stream->trailers.Keep(*trailers);
    // Nothing remains before them: a frame without bytes would wait for a closed window.
    if (stream->left() == 0) return SubmitTrailers(*stream);
  }
  Resume(*stream);
}

void Session::End(StreamId stream) { state_->EndBody(stream, nullptr); }

void Session::End(StreamId stream, Headers trailers) { state_->EndBody(stream, &trailers); }

void Session::Reset(StreamId stream, ErrorCode code) {
  Stream* found = state_->GetLive(stream);
  if (found == nullptr) return;
  state_->ResetStream(*found, code);
}

void Session::State::ResetStream(Stream& stream, ErrorCode code) const {
  stream.resetting = true;
  Release(stream.body);
  stream.offset = 0;
  nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, Id(stream.id), static_cast<uint32_t>(code));
}

// ---- the connection

void Session::Ping(uint64_t payload) {
  uint8_t bytes[8];
  std::memcpy(bytes, &payload, sizeof(bytes));
  nghttp2_submit_ping(state_->session, NGHTTP2_FLAG_NONE, bytes);
}

void Session::GiveNotice() { nghttp2_submit_shutdown_notice(state_->session); }

void Session::GoAway(ErrorCode code, std::string_view debug) {
  nghttp2_session* session = state_->session;
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session);
  nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE, last, static_cast<uint32_t>(code),
                        BytesOf(debug), debug.size());
}

// nghttp2's own frame that ends a session has no room for `debug`: a second one follows.
void Session::Terminate(ErrorCode code, std::string_view debug) {
  if (!debug.empty()) GoAway(code, debug);
  nghttp2_session_terminate_session(state_->session, static_cast<uint32_t>(code));
}

size_t Session::open_streams() const { return state_->streams.size(); }

uint64_t Session::streams_refused() const { return state_->refused; }

size_t Session::most_sent_header_bytes() const {
  const uint32_t peers =
      nghttp2_session_get_remote_settings(state_->session, NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE);
  return std::min<size_t>(peers, kMostSentHeaderBytes);
}

}  // namespace quire::http2
