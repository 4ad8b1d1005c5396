#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/http2/session_state.h"

namespace quire::http2 {
namespace {

constexpr size_t kFrameHeaderBytes = 9;       // three of them the length of what follows
constexpr size_t kSettingBytes = 6;           // an id and a value
constexpr size_t kMaxAnswersWaiting = 1000;   // acknowledgements of PING and SETTINGS
constexpr size_t kMaxSettingsEntries = 32;    // of one frame
constexpr uint32_t kInitialWindow = 65'535;   // before SETTINGS say otherwise
constexpr size_t kKeptBodyBytes = 64u << 10;  // of a body that has left
// A byte of a header block is one field at most, which counts as this when it is empty.
constexpr size_t kMostDecodedOfByte = kHeaderOverhead;
constexpr size_t kMostOfSplitBlock = 64u << 10;  // with its continuations

}  // namespace

void Session::State::SetReceiving(nghttp2_session_callbacks* callbacks) {
  nghttp2_session_callbacks_set_on_begin_frame_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame_hd* head, void* user) {
        return static_cast<State*>(user)->BeginFrame(*head);
      });
  nghttp2_session_callbacks_set_on_begin_headers_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
        static_cast<State*>(user)->BeginHeaders(*frame);
        return 0;
      });
  nghttp2_session_callbacks_set_on_header_callback2(
      callbacks, [](nghttp2_session*, const nghttp2_frame*, nghttp2_rcbuf* name,
                    nghttp2_rcbuf* value, uint8_t, void* user) {
        State& state = *static_cast<State*>(user);
        state.block.Add(name, value, state.settings.max_header_list_bytes);
        return state.Decoded(SizeOf({ViewOf(name), ViewOf(value)}));
      });
  // Fields that HTTP forbids and that are left out cost as much.
  nghttp2_session_callbacks_set_on_invalid_header_callback2(
      callbacks, [](nghttp2_session*, const nghttp2_frame*, nghttp2_rcbuf* name,
                    nghttp2_rcbuf* value, uint8_t, void* user) {
        return static_cast<State*>(user)->Decoded(SizeOf({ViewOf(name), ViewOf(value)}));
      });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks,
      [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* user) {
        static_cast<State*>(user)->ReceivedData(static_cast<StreamId>(id), ViewOf(data, size));
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
        static_cast<State*>(user)->ReceivedFrame(*frame);
        return 0;
      });
}

void Session::State::SetSending(nghttp2_session_callbacks* callbacks) {
  nghttp2_session_callbacks_set_on_frame_send_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
        static_cast<State*>(user)->SentFrame(*frame);
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_not_send_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, int why, void* user) {
        static_cast<State*>(user)->NotSent(*frame, why);
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session*, int32_t id, uint32_t code, void* user) {
        static_cast<State*>(user)->Closed(static_cast<StreamId>(id), code);
        return 0;
      });
  nghttp2_session_callbacks_set_send_data_callback(
      callbacks, [](nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t size,
                    nghttp2_data_source* source, void* user) {
        return static_cast<State*>(user)->SendBody(*static_cast<Stream*>(source->ptr),
                                                   ViewOf(head, kFrameHeaderBytes), size);
      });
}

void Session::State::Begin() {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  QUIRE_CHECK(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
  SetReceiving(callbacks);
  SetSending(callbacks);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_max_outbound_ack(option, kMaxAnswersWaiting);
  nghttp2_option_set_max_settings(option, kMaxSettingsEntries);
  nghttp2_option_set_max_continuations(option, settings.max_continuations);
  nghttp2_option_set_max_deflate_dynamic_table_size(option, settings.hpack_table_bytes);
  nghttp2_option_set_stream_reset_rate_limit(option, settings.reset_burst,
                                             settings.resets_per_second);
  const int made = side == Side::kServer
                       ? nghttp2_session_server_new2(&session, callbacks, this, option)
                       : nghttp2_session_client_new2(&session, callbacks, this, option);
  QUIRE_CHECK(made == 0);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  Announce();
}

void Session::State::Announce() const {
  std::vector<nghttp2_settings_entry> entries = {
      {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, settings.hpack_table_bytes},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, settings.stream_window_bytes},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, settings.max_frame_bytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings.max_header_list_bytes}};
  if (side == Side::kClient) entries.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  QUIRE_CHECK(nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, entries.data(), entries.size()) ==
              0);
  const auto window = std::max(settings.connection_window_bytes, kInitialWindow);
  QUIRE_CHECK(nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                                    static_cast<int32_t>(window)) == 0);
}

// ---- receiving

Stream& Session::State::Add(StreamId id) {
  std::unique_ptr<Stream>& slot = streams[id];
  QUIRE_CHECK(slot == nullptr);
  slot = std::make_unique<Stream>();
  slot->id = id;
  return *slot;
}

int Session::State::Decoded(size_t bytes) {
  if (handler.OnDecoded(bytes)) return 0;
  stopped = true;
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

// nghttp2 decodes a block of an unknown stream, to keep its table, and reports none of its fields:
// only the next frame shows that it was one.
int Session::State::BeginFrame(const nghttp2_frame_hd& head) {
  const size_t ignored = std::exchange(ignored_bytes, 0);
  if (ignored > 0 && Decoded(ignored * kMostDecodedOfByte) != 0) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  const bool begins = head.type == NGHTTP2_HEADERS || head.type == NGHTTP2_PUSH_PROMISE;
  ignoring = ignoring || begins;
  const bool of_block = begins || head.type == NGHTTP2_CONTINUATION;
  if (!of_block || !ignoring) return 0;
  // nghttp2 does not report the continuation of such a block.
  const bool whole = (head.flags & NGHTTP2_FLAG_END_HEADERS) != 0;
  ignored_bytes = whole ? head.length : kMostOfSplitBlock;
  return 0;
}

void Session::State::BeginHeaders(const nghttp2_frame& frame) {
  ignoring = false;
  ignored_bytes = 0;
  block.Clear();
  if (frame.hd.type != NGHTTP2_HEADERS || frame.headers.cat != NGHTTP2_HCAT_REQUEST) return;
  const auto id = static_cast<StreamId>(frame.hd.stream_id);
  if (streams.size() < settings.max_concurrent_streams) {
    Add(id);
    return;
  }
  ++refused;
  nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, Id(id), NGHTTP2_REFUSED_STREAM);
}

void Session::State::TellBlock(Stream& stream, const nghttp2_frame& frame) {
  HeaderBlock told{.fields = block.fields(), .too_large = block.too_large()};
  told.ends = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (side == Side::kServer) {
    told.trailers = frame.headers.cat != NGHTTP2_HCAT_REQUEST;
  } else {
    told.trailers = stream.responded;
    const bool informational = Find(told.fields, ":status").value_or("").starts_with('1');
    if (!told.trailers && informational && !told.ends) return;
    stream.responded = true;
  }
  if (!stream.resetting) handler.OnHeaders(stream.id, told);
}

void Session::State::ReceivedFrame(const nghttp2_frame& frame) {
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA: {
      Stream* stream = Get(static_cast<StreamId>(frame.hd.stream_id));
      if (stream == nullptr) return;
      stream->peer_ended = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
      if (frame.hd.type == NGHTTP2_HEADERS) {
        TellBlock(*stream, frame);
        block.Clear();
      }
      if (stream->peer_ended && !stream->resetting) handler.OnEnd(stream->id);
      return;
    }
    case NGHTTP2_GOAWAY:
      handler.OnGoAway(static_cast<StreamId>(frame.goaway.last_stream_id),
                       static_cast<ErrorCode>(frame.goaway.error_code),
                       ViewOf(frame.goaway.opaque_data, frame.goaway.opaque_data_len));
      return;
    case NGHTTP2_PING: {
      if ((frame.hd.flags & NGHTTP2_FLAG_ACK) == 0) return;
      uint64_t payload = 0;
      std::memcpy(&payload, frame.ping.opaque_data, sizeof(payload));
      handler.OnPingAnswered(payload);
      return;
    }
    default:
      return;
  }
}

void Session::State::ReceivedData(StreamId id, std::string_view bytes) {
  Stream* stream = GetLive(id);
  if (stream == nullptr) {
    nghttp2_session_consume_connection(session, bytes.size());
    return;
  }
  stream->stream_debt += bytes.size();
  stream->connection_debt += bytes.size();
  handler.OnData(id, bytes);
}

void Session::State::Closed(StreamId id, uint32_t code) {
  const auto it = streams.find(id);
  if (it == streams.end()) return;
  const std::unique_ptr<Stream> stream = std::move(it->second);
  streams.erase(it);
  nghttp2_session_consume_connection(session, stream->connection_debt);
  handler.OnClosed(id, static_cast<ErrorCode>(code));
}

void Session::State::ConsumeOfStream(Stream& stream, size_t bytes) const {
  const size_t consumed = std::min(bytes, stream.stream_debt);
  stream.stream_debt -= consumed;
  if (consumed == 0 || stream.peer_ended) return;  // nothing more comes
  nghttp2_session_consume_stream(session, Id(stream.id), consumed);
}

void Session::State::ConsumeOfConnection(Stream& stream, size_t bytes) const {
  const size_t consumed = std::min(bytes, stream.connection_debt);
  stream.connection_debt -= consumed;
  if (consumed > 0) nghttp2_session_consume_connection(session, consumed);
}

// ---- sending

// nghttp2 ends the connection of a client that opens more streams than announced; here each of them
// is refused instead. So nghttp2 does not know the limit, and it is added to our SETTINGS on the
// way out.
void Session::State::AppendFrame(std::string_view frame) {
  const size_t begin = out->size();
  out->append(frame);
  if (announced || side == Side::kClient || frame.empty()) return;
  announced = true;
  char* head = out->data() + begin;
  const size_t payload = frame.size() - kFrameHeaderBytes + kSettingBytes;
  QUIRE_CHECK(head[3] == NGHTTP2_SETTINGS && head[4] == NGHTTP2_FLAG_NONE && payload < 256);
  head[2] = static_cast<char>(payload);
  out->append({0, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS});
  for (int shift = 24; shift >= 0; shift -= 8) {
    *out += static_cast<char>(settings.max_concurrent_streams >> shift & 0xFF);
  }
}

void Session::State::TellSent() {
  std::swap(being_told, sent_from);
  for (const StreamId id : being_told) {
    Stream* stream = Get(id);
    if (stream == nullptr) continue;
    stream->has_sent = false;
    if (!stream->resetting) handler.OnSent(id, stream->left());
  }
  being_told.clear();
}

// nghttp2 asks how much of the body goes into a frame...
ssize_t Session::State::ReadBody(Stream& stream, size_t most, uint32_t& flags) const {
  if (stream.resetting || (stream.left() == 0 && !stream.ended)) {
    stream.deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  const size_t size = std::min(stream.left(), most);
  flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (stream.ended && size == stream.left()) {
    flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream.has_trailers) {
      flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      SubmitTrailers(stream);
    }
  }
  return static_cast<ssize_t>(size);
}

// ... and has that frame sent.
int Session::State::SendBody(Stream& stream, std::string_view head, size_t size) {
  out->append(head).append(stream.body, stream.offset, size);
  stream.offset += size;
  if (stream.left() == 0) {
    stream.offset = 0;
    stream.body.clear();
    if (stream.body.capacity() > kKeptBodyBytes) stream.body.shrink_to_fit();
  } else if (stream.offset > kKeptBodyBytes && stream.offset > stream.body.size() / 2) {
    stream.body.erase(0, stream.offset);
    stream.offset = 0;
  }
  if (!stream.has_sent) sent_from.push_back(stream.id);
  stream.has_sent = true;
  paused = out->size() >= out_most;
  return paused ? NGHTTP2_ERR_PAUSE : 0;
}

void Session::State::SentFrame(const nghttp2_frame& frame) {
  handler.OnFrameSent(frame.hd.type, frame.hd.flags);
  if (frame.hd.type == NGHTTP2_RST_STREAM) {
    handler.OnResetSent(static_cast<ErrorCode>(frame.rst_stream.error_code));
  }
  const bool may_end = frame.hd.type == NGHTTP2_DATA || frame.hd.type == NGHTTP2_HEADERS;
  const bool ends = may_end && (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (side == Side::kClient || !ends) return;
  const Stream* stream = GetLive(static_cast<StreamId>(frame.hd.stream_id));
  if (stream == nullptr || stream->peer_ended) return;
  nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame.hd.stream_id, NGHTTP2_NO_ERROR);
}

// Its stream would wait for the rest forever.
void Session::State::NotSent(const nghttp2_frame& frame, int why) {
  // A request that is not sent is closed by nghttp2.
  if (frame.hd.type != NGHTTP2_HEADERS || frame.headers.cat == NGHTTP2_HCAT_REQUEST ||
      why == NGHTTP2_ERR_STREAM_CLOSED || why == NGHTTP2_ERR_STREAM_CLOSING ||
      why == NGHTTP2_ERR_SESSION_CLOSING) {
    return;
  }
  Stream* stream = GetLive(static_cast<StreamId>(frame.hd.stream_id));
  if (stream != nullptr) ResetStream(*stream, ErrorCode::kInternalError);
}

nghttp2_data_provider Session::State::BodyOf(Stream& stream) {
  nghttp2_data_provider body{};
  body.source.ptr = &stream;
  body.read_callback = [](nghttp2_session*, int32_t, uint8_t*, size_t most, uint32_t* flags,
                          nghttp2_data_source* source, void* user) {
    return static_cast<State*>(user)->ReadBody(*static_cast<Stream*>(source->ptr), most, *flags);
  };
  return body;
}

}  // namespace quire::http2
