// Two sessions against each other over strings, each with a journal of what it was told.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/http2/session.h"

namespace quire::http2 {

inline std::string TextOf(Headers headers) {
  std::string text;
  for (const Header& header : headers) {
    text += std::string(text.empty() ? "" : " ") + std::string(header.name) + "=" +
            std::string(header.value.substr(0, 40));
  }
  return text;
}

class End final : public Handler {
 public:
  explicit End(Session::Side side, const Settings& settings = {})
      : session(side, settings, *this) {}

  void OnHeaders(StreamId stream, const HeaderBlock& block) override {
    const char* kind = block.trailers ? "trailers " : "headers ";
    Note(kind + std::to_string(stream) + " " + TextOf(block.fields) + (block.ends ? " ends" : "") +
         (block.too_large ? " too large" : ""));
    last_stream = stream;
    if (on_headers) on_headers(stream);
  }
  void OnData(StreamId stream, std::string_view bytes) override {
    data[stream] += bytes;
    if (consumes) session.Consume(stream, bytes.size());
    if (on_data) on_data(stream);
  }
  void OnEnd(StreamId stream) override { Note("end " + std::to_string(stream)); }
  void OnSent(StreamId, size_t left) override { left_to_send = left; }
  void OnClosed(StreamId stream, ErrorCode code) override {
    Note("closed " + std::to_string(stream) + " " + std::to_string(static_cast<uint32_t>(code)));
  }
  void OnGoAway(StreamId last, ErrorCode code, std::string_view debug) override {
    Note("goaway " + std::to_string(last) + " " + std::to_string(static_cast<uint32_t>(code)) +
         " " + std::string(debug));
  }
  void OnPingAnswered(uint64_t payload) override { Note("pong " + std::to_string(payload)); }
  void OnFrameSent(uint8_t type, uint8_t) override { ++frames_sent[type]; }
  bool OnDecoded(size_t bytes) override {
    ++fields_decoded;
    decoded += bytes;
    return decoded <= most_decoded;
  }

  bool Told(const std::string& line) const {
    return std::find(journal.begin(), journal.end(), line) != journal.end();
  }
  void Note(std::string line) { journal.push_back(std::move(line)); }
  std::string TakeOut() {
    std::string out;
    while (session.wants_to_send()) {
      const size_t before = out.size();
      session.Send(out, out.size() + 4096);
      if (out.size() == before) break;
    }
    return out;
  }

  Session session;
  std::vector<std::string> journal;
  std::map<StreamId, std::string> data;
  std::map<uint8_t, int> frames_sent;
  StreamId last_stream = 0;
  size_t left_to_send = 0;
  size_t decoded = 0, fields_decoded = 0;
  size_t most_decoded = SIZE_MAX;
  bool consumes = true;
  std::function<void(StreamId)> on_headers;
  std::function<void(StreamId)> on_data;
  absl::Status received;  // of the first Receive that failed
};

// Moves bytes until neither has any, `step` at a time.
inline void Shuttle(End& a, End& b, size_t step = 1 << 20) {
  const auto feed = [step](End& from, End& to) {
    const std::string bytes = from.TakeOut();
    for (size_t at = 0; at < bytes.size() && to.received.ok(); at += step) {
      to.received = to.session.Receive(std::string_view(bytes).substr(at, step));
    }
    return !bytes.empty();
  };
  bool moved = true;
  while (moved) {
    moved = feed(a, b);
    moved = feed(b, a) || moved;
  }
}

inline const std::vector<Header> kRequest = {{":method", "POST"},
                                             {":scheme", "http"},
                                             {":path", "/s/M"},
                                             {":authority", "a"},
                                             {"te", "trailers"}};
inline const std::vector<Header> kResponse = {{":status", "200"},
                                              {"content-type", "application/grpc"}};
inline const std::vector<Header> kTrailersOnly = {{":status", "200"}, {"grpc-status", "5"}};
inline const std::vector<Header> kTrailers = {{"grpc-status", "0"}, {"x-id", "7", true}};

}  // namespace quire::http2
