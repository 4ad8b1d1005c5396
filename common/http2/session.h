// One HTTP/2 connection (RFC 9113), client or server, over bytes alone: bytes from the peer go in
// through Receive, bytes for the peer come out of Send. No socket, no thread, and no clock except
// that of nghttp2's limit on resets.
//
// nghttp2 does the protocol itself; its types stay in session_state.h and the two files behind it.
// Owner: the owner of the connection's socket; one thread. Callbacks come from inside Receive and
// Send; they may call everything of the session except Receive, Send and its destructor.
//
// Invariants:
// 1. Any split of the received bytes has the same result.
// 2. A stream's callbacks come as OnHeaders, OnData*, (OnHeaders of trailers)?, OnEnd?, then
//    OnClosed once; nothing follows. A stream without any of these may still get OnClosed. Calls
//    about a closed stream do nothing.
// 3. A window opens again only by Consume*: a reader that does not consume slows its peer down, and
//    the windows of Settings bound what the peer can have under way. Bytes of a closed stream that
//    were not consumed are returned to the connection's window automatically.
// 4. Memory that the peer decides on is bounded: by the windows, the streams, the header list, the
//    HPACK table, and max_waiting_frames.
// 5. Whole messages that are written in one turn leave in one Send.
// 6. Decoding a header block costs what OnDecoded reports, and ends when OnDecoded returns so: a
//    byte of the wire may stand for a field of kilobytes.
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

// Views that are valid during the callback.
struct HeaderBlock {
  Headers fields;
  bool trailers = false;
  bool ends = false;       // the peer's side of the stream; OnEnd follows
  bool too_large = false;  // fields are those before the limit
};

// The values that this side announces, and its own bounds.
struct Settings {
  uint32_t max_concurrent_streams = 256;        // that the peer may have open
  uint32_t stream_window_bytes = 65'535;        // of each stream, for what the peer sends
  uint32_t connection_window_bytes = 1u << 20;  // for all of them together; at least 65'535
  uint32_t max_frame_bytes = 16'384;            // 16'384 to 2^24 - 1
  uint32_t max_header_list_bytes = 64u << 10;   // names, values and 32 for each, of one block
  uint32_t hpack_table_bytes = 4096;            // in each direction
  uint32_t max_continuations = 8;               // of one block
  // Frames other than DATA that wait to be sent, most of them answers; Receive fails beyond this
  // limit.
  uint32_t max_waiting_frames = 4096;
  // Streams that the peer may reset, on a server: at once, and each second. Beyond: GOAWAY.
  uint64_t reset_burst = 1000;
  uint64_t resets_per_second = 100;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Server: the headers of a new stream, or its trailers. Client: the response, or its trailers;
  // informational responses are not reported.
  virtual void OnHeaders(StreamId stream, const HeaderBlock& block) = 0;
  // The view is valid during the callback. Consume* later reports which bytes have been processed.
  virtual void OnData(StreamId stream, std::string_view bytes) = 0;
  virtual void OnEnd(StreamId /*stream*/) {}
  // Send has taken some of the stream's body, `left` bytes wait. Called once for each Send, at its
  // end.
  virtual void OnSent(StreamId /*stream*/, size_t /*left*/) {}
  // kNoError: both sides have ended. Otherwise one of them has reset it, or a GOAWAY of the peer
  // states that the peer never processed it (kRefusedStream).
  virtual void OnClosed(StreamId stream, ErrorCode code) = 0;
  virtual void OnGoAway(StreamId /*last*/, ErrorCode /*code*/, std::string_view /*debug*/) {}
  virtual void OnPingAnswered(uint64_t /*payload*/) {}
  // Send has taken a frame; its type and flags as on the wire. Must not call the session.
  virtual void OnFrameSent(uint8_t /*type*/, uint8_t /*flags*/) {}
  // An RST_STREAM has been sent, by us or by nghttp2, which answers violations of the protocol in
  // this way. Must not call the session.
  virtual void OnResetSent(ErrorCode /*code*/) {}
  // This many bytes of a header list were decoded (each field counts as its name, its value, and
  // 32), whether they are reported or not. False: decoding stops there, and Receive returns an
  // error. Must not call the session. A block that belongs to no stream is reported with the next
  // frame of one, as 32 times its bytes on the wire, which is at least its number of fields.
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

  // All of `bytes` is consumed. An error: the connection is unusable; what Send returns (a GOAWAY)
  // may still be sent. Violations of the protocol for which HTTP/2 has an error code are not errors
  // here: the code is sent, and over() becomes true.
  absl::Status Receive(std::string_view bytes);
  // Appends frames to `out` until it holds `most` bytes (exceeding them by at most one frame), or
  // until nothing is left to send.
  void Send(std::string& out, size_t most);
  bool wants_to_send() const;
  // There is nothing more to receive or send: the socket may be closed.
  bool over() const;

  // Client: a new stream; 0 when the connection takes no more. `ends`: without a body.
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
  // Ends our side, after the queued data. A server's end closes the stream even when the peer's
  // side is still open (a reset without error).
  void End(StreamId stream);
  void End(StreamId stream, Headers trailers);
  // Queued data is dropped.
  void Reset(StreamId stream, ErrorCode code);

  // `bytes` of what OnData delivered have been processed: returns them to both windows, or to one.
  void Consume(StreamId stream, size_t bytes);
  void ConsumeOfStream(StreamId stream, size_t bytes);
  void ConsumeOfConnection(StreamId stream, size_t bytes);

  void Ping(uint64_t payload);
  // Server: asks the peer to begin no further streams; those that still come are served.
  void GiveNotice();
  // Refuses further streams of the peer; open ones continue.
  void GoAway(ErrorCode code, std::string_view debug = {});
  // Like GoAway, and over() once that has been sent: open streams are closed.
  void Terminate(ErrorCode code, std::string_view debug = {});

  size_t open_streams() const;
  uint64_t streams_refused() const;  // of a client, beyond max_concurrent_streams
  // Limits of one header block, counted as in Settings: what the peer accepts, and what nghttp2
  // sends.
  size_t most_sent_header_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::http2
