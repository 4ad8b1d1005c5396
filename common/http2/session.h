// One HTTP/2 connection (RFC 9113), client or server, over bytes alone: what the peer sent goes in
// by Receive, what is to be sent to it comes out of Send. No socket, no thread, and no clock but
// that of nghttp2's limit on resets.
//
// The wire itself is nghttp2's work, whose types stay in session_state.h and the two files behind
// it. Owner: whoever has the connection's socket; one thread. Callbacks come from inside Receive
// and Send; they may call everything of the session but Receive, Send and its destructor.
//
// Invariants:
// 1. Any split of the received bytes means the same.
// 2. A stream's callbacks come as OnHeaders, OnData*, (OnHeaders of trailers)?, OnEnd?, then
//    OnClosed once; nothing follows. A stream without any of these may still get OnClosed.
//    What is asked of a stream that is closed does nothing.
// 3. A window opens again only by Consume*: a reader that does not consume slows its peer down, and
//    what the peer can have under way is bounded by the windows of Settings. What a closed stream
//    has not consumed of the connection's window is given back by itself.
// 4. Memory that the peer decides on is bounded: by the windows, the streams, the header list, the
//    HPACK table, and max_waiting_frames.
// 5. Whole messages that are written in one turn leave in one Send.
// 6. Decoding a header block costs what OnDecoded was told, and ends where it says so: a byte of
// the
//    wire may stand for a field of kilobytes.
// 7. A header block that cannot be sent ends its stream by a reset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "common/status.h"

namespace quire::http2 {

using StreamId = uint32_t;  // 0 is none

// RFC 9113, section 7. A peer may send others.
enum class ErrorCode : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kInternalError = 2,
  kFlowControlError = 3,
  kSettingsTimeout = 4,
  kStreamClosed = 5,
  kFrameSizeError = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompressionError = 9,
  kConnectError = 10,
  kEnhanceYourCalm = 11,
  kInadequateSecurity = 12,
  kHttp11Required = 13,
};

// Names are in lower case, pseudo-headers (":path") first.
struct Header {
  std::string_view name;
  std::string_view value;
  bool no_index = false;  // a value that differs each time: kept out of the HPACK table
};
using Headers = std::span<const Header>;
// The first one of that name.
std::optional<std::string_view> Find(Headers headers, std::string_view name);

// Views that hold during the callback.
struct HeaderBlock {
  Headers fields;
  bool trailers = false;
  bool ends = false;       // the peer's side of the stream; OnEnd follows
  bool too_large = false;  // fields are those that came before the limit
};

// What this side announces, and its own bounds.
struct Settings {
  uint32_t max_concurrent_streams = 256;        // that the peer may have open
  uint32_t stream_window_bytes = 65'535;        // of each stream, for what the peer sends
  uint32_t connection_window_bytes = 1u << 20;  // of all of them together; at least 65'535
  uint32_t max_frame_bytes = 16'384;            // 16'384 to 2^24 - 1
  uint32_t max_header_list_bytes = 64u << 10;   // names, values and 32 for each, of one block
  uint32_t hpack_table_bytes = 4096;            // each way
  uint32_t max_continuations = 8;               // of one block
  // Frames other than DATA that wait to be sent, most of them answers; Receive fails beyond it.
  uint32_t max_waiting_frames = 4096;
  // Streams that the peer may reset, as a server: at once, and each second. Past it: GOAWAY.
  uint64_t reset_burst = 1000;
  uint64_t resets_per_second = 100;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Server: of a new stream, or its trailers. Client: the response, or its trailers; informational
  // responses do not come here.
  virtual void OnHeaders(StreamId stream, const HeaderBlock& block) = 0;
  // The view holds during the callback. Consume* later says what of it has been dealt with.
  virtual void OnData(StreamId stream, std::string_view bytes) = 0;
  virtual void OnEnd(StreamId /*stream*/) {}
  // Some of the stream's body has left by Send, `left` bytes wait. Once for each Send, at its end.
  virtual void OnSent(StreamId /*stream*/, size_t /*left*/) {}
  // kNoError: both sides have ended. Else one of them has reset it, or a GOAWAY of the peer says
  // that it never saw it (kRefusedStream).
  virtual void OnClosed(StreamId stream, ErrorCode code) = 0;
  virtual void OnGoAway(StreamId /*last*/, ErrorCode /*code*/, std::string_view /*debug*/) {}
  virtual void OnPingAnswered(uint64_t /*payload*/) {}
  // A frame has left by Send; its type and flags as on the wire. Must not call the session.
  virtual void OnFrameSent(uint8_t /*type*/, uint8_t /*flags*/) {}
  // An RST_STREAM has left, by us or by nghttp2, which answers breaches of the protocol so. Must
  // not call the session.
  virtual void OnResetSent(ErrorCode /*code*/) {}
  // So many bytes of a header list were decoded (each field is its name, its value, and 32),
  // whether they are told or not. False: decoding stops there, and Receive gives an error. Must not
  // call the session. What belongs to no stream is told with the next frame of one, and taken for
  // 32 times its bytes on the wire, which is at least how many fields it had.
  virtual bool OnDecoded(size_t /*bytes*/) { return true; }
};

class Session {
 public:
  enum class Side { kClient, kServer };

  // `handler` outlives the session.
  Session(Side side, const Settings& settings, Handler& handler);
  ~Session();  // no callback
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // All of `bytes` is taken. An error: the connection is beyond use; what Send gives (a GOAWAY) may
  // still be sent. Breaches of the protocol that HTTP/2 has a word for are no error here: the word
  // is sent, and over() becomes true.
  absl::Status Receive(std::string_view bytes);
  // Appends frames to `out` until it holds `most` bytes, a frame more at the most, or nothing is to
  // be sent.
  void Send(std::string& out, size_t most);
  bool wants_to_send() const;
  // Nothing more is to be received nor sent: the socket may be closed.
  bool over() const;

  // Client: a new stream; 0 when the connection takes none any more. `ends`: without a body.
  StreamId Open(Headers request, bool ends = false);
  // Server: once for each stream, before its body.
  void Respond(StreamId stream, Headers response);
  // Server: a response without a body, whose only headers end it.
  void RespondAndEnd(StreamId stream, Headers response);

  // Queues bytes of the stream's body, after Open or Respond and before End.
  void Write(StreamId stream, std::string_view bytes);
  // The same without a copy: `fill` writes `size` bytes.
  void Write(StreamId stream, size_t size, absl::FunctionRef<void(char* at)> fill);
  size_t Queued(StreamId stream) const;  // bytes of its body that have not left by Send
  // Ends our side, after what is queued. A server's end closes the stream even when the peer's side
  // is still open (a reset without error).
  void End(StreamId stream);
  void End(StreamId stream, Headers trailers);
  // What is queued is dropped.
  void Reset(StreamId stream, ErrorCode code);

  // `bytes` of what OnData gave are dealt with: in both windows, or in one.
  void Consume(StreamId stream, size_t bytes);
  void ConsumeOfStream(StreamId stream, size_t bytes);
  void ConsumeOfConnection(StreamId stream, size_t bytes);

  void Ping(uint64_t payload);
  // Server: asks the peer to begin no further streams; those that come yet are served.
  void GiveNotice();
  // No further streams of the peer; those that are open go on.
  void GoAway(ErrorCode code, std::string_view debug = {});
  // As GoAway, and over() once that has left: streams that are open are closed.
  void Terminate(ErrorCode code, std::string_view debug = {});

  size_t open_streams() const;
  uint64_t streams_refused() const;  // of a client, beyond max_concurrent_streams
  // Of one header block, counted as in Settings: what the peer takes, and nghttp2 sends.
  size_t most_sent_header_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::http2
