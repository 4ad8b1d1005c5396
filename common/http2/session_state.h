// The state of a session, for session.cc (its owner's calls) and session_frames.cc (nghttp2's
// callbacks), which alone include it. Owner: the session.
//  1. A Stream lives from its opening until nghttp2 reports that it is closed; nghttp2 holds its
//     address meanwhile, since it is the source of the body.
#pragma once

#include <nghttp2/nghttp2.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "common/http2/session.h"

namespace quire::http2 {

inline int32_t Id(StreamId stream) { return static_cast<int32_t>(stream); }

inline std::string_view ViewOf(nghttp2_rcbuf* buffer) {
  const nghttp2_vec bytes = nghttp2_rcbuf_get_buf(buffer);
  return {reinterpret_cast<const char*>(bytes.base), bytes.len};
}

inline std::string_view ViewOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// nghttp2 does not write to them.
inline uint8_t* BytesOf(std::string_view text) {
  return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data()));
}

using Pairs = absl::InlinedVector<nghttp2_nv, 8>;

inline void AddPair(Pairs& pairs, const Header& header) {
  const uint8_t flags = header.no_index ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;
  pairs.push_back({BytesOf(header.name), BytesOf(header.value), header.name.size(),
                   header.value.size(), flags});
}

inline Pairs PairsOf(Headers headers) {
  Pairs pairs;
  pairs.reserve(headers.size());
  for (const Header& header : headers) AddPair(pairs, header);
  return pairs;
}

inline constexpr size_t kHeaderOverhead = 32;  // of each field of a header list (RFC 9113, 6.5.2)
inline size_t SizeOf(const Header& field) {
  return field.name.size() + field.value.size() + kHeaderOverhead;
}

// Fields that outlive the call that passed them, in one piece of memory.
class KeptHeaders {
 public:
  void Keep(Headers headers) {
    for (const Header& header : headers) {
      text_.append(header.name).append(header.value);
      fields_.push_back({header.name.size(), header.value.size(), header.no_index});
    }
  }
  Pairs AsPairs() const {
    Pairs pairs;
    pairs.reserve(fields_.size());
    std::string_view rest = text_;
    for (const Kept& field : fields_) {
      AddPair(pairs,
              {rest.substr(0, field.name), rest.substr(field.name, field.value), field.no_index});
      rest.remove_prefix(field.name + field.value);
    }
    return pairs;
  }

 private:
  struct Kept {
    size_t name = 0;  // bytes of both
    size_t value = 0;
    bool no_index = false;
  };
  std::string text_;
  std::vector<Kept> fields_;
};

// The header block that is being received: a connection has one at a time.
class IncomingBlock {
 public:
  ~IncomingBlock() { Clear(); }
  void Clear();
  void Add(nghttp2_rcbuf* name, nghttp2_rcbuf* value, size_t most) {
    const Header field{.name = ViewOf(name), .value = ViewOf(value)};
    bytes_ += SizeOf(field);
    too_large_ = too_large_ || bytes_ > most;
    if (too_large_) return;
    for (nghttp2_rcbuf* buffer : {name, value}) {
      nghttp2_rcbuf_incref(buffer);
      held_.push_back(buffer);
    }
    fields_.push_back(field);
  }
  Headers fields() const { return fields_; }
  bool too_large() const { return too_large_; }

 private:
  std::vector<nghttp2_rcbuf*> held_;
  std::vector<Header> fields_;
  size_t bytes_ = 0;
  bool too_large_ = false;
};

struct Stream {
  size_t left() const { return body.size() - offset; }

  StreamId id = 0;
  std::string body;  // what has not been sent yet, after `offset`
  size_t offset = 0;
  KeptHeaders trailers;
  size_t stream_debt = 0;  // received and not consumed
  size_t connection_debt = 0;
  bool responded = false;  // headers of the response: submitted as a server, received as a client
  bool ended = false;      // our side, once the body has been sent
  bool has_trailers = false;
  bool deferred = false;  // nghttp2 waits until there is more
  bool peer_ended = false;
  bool resetting = false;  // by us: only its closing is still reported
  bool has_sent = false;   // of its body, in this Send
};

struct Session::State {
  State(Side session_side, const Settings& session_settings, Handler& session_handler)
      : side(session_side), settings(session_settings), handler(session_handler) {}
  ~State() { nghttp2_session_del(session); }

  void Begin();
  void Announce() const;

  Stream* Get(StreamId id) {
    const auto it = streams.find(id);
    return it == streams.end() ? nullptr : it->second.get();
  }
  // A stream that is not being reset.
  Stream* GetLive(StreamId id) {
    Stream* stream = Get(id);
    return stream == nullptr || stream->resetting ? nullptr : stream;
  }
  Stream& Add(StreamId id);
  void ConsumeOfStream(Stream& stream, size_t bytes) const;
  void ConsumeOfConnection(Stream& stream, size_t bytes) const;
  std::string& BodyToWrite(Stream& stream) const;
  void EndBody(StreamId id, const Headers* trailers);
  void Resume(Stream& stream) const;
  void ResetStream(Stream& stream, ErrorCode code) const;
  void SubmitTrailers(const Stream& stream) const;
  void TellBlock(Stream& stream, const nghttp2_frame& frame);
  void TellSent();
  void AppendFrame(std::string_view frame);
  static nghttp2_data_provider BodyOf(Stream& stream);

  // nghttp2's callbacks.
  static void SetReceiving(nghttp2_session_callbacks* callbacks);
  static void SetSending(nghttp2_session_callbacks* callbacks);
  int BeginFrame(const nghttp2_frame_hd& head);
  void BeginHeaders(const nghttp2_frame& frame);
  int Decoded(size_t bytes);
  void ReceivedFrame(const nghttp2_frame& frame);
  void ReceivedData(StreamId id, std::string_view bytes);
  void SentFrame(const nghttp2_frame& frame);
  void NotSent(const nghttp2_frame& frame, int why);
  void Closed(StreamId id, uint32_t code);
  ssize_t ReadBody(Stream& stream, size_t most, uint32_t& flags) const;
  int SendBody(Stream& stream, std::string_view head, size_t size);

  const Side side;
  const Settings settings;
  Handler& handler;
  nghttp2_session* session = nullptr;
  IncomingBlock block;
  bool ignoring = false;     // the current block belongs to no stream
  size_t ignored_bytes = 0;  // of such a block, on the wire, not yet reported to OnDecoded
  bool stopped = false;      // OnDecoded has returned so
  absl::flat_hash_map<StreamId, std::unique_ptr<Stream>> streams;
  std::string* out = nullptr;  // while in Send
  size_t out_most = 0;
  bool announced = false;            // our SETTINGS have been sent
  bool paused = false;               // Send has as much as was requested
  std::vector<StreamId> sent_from;   // streams with body data in this Send
  std::vector<StreamId> being_told;  // those of the last one
  uint64_t refused = 0;
};

}  // namespace quire::http2
