// Fuzzes a session and the messages in its streams: any bytes of the peer, in any split, tell the
// same, and break no bound. The first byte is the split's step, the second one says which side is
// asked.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "common/http2/grpc_framing.h"
#include "common/http2/session.h"

namespace {

using namespace quire::http2;

constexpr size_t kMaxMessageBytes = 1000;

class Witness final : public Handler {
 public:
  Witness(Session::Side side, const Settings& settings) : session(side, settings, *this) {
    if (side == Session::Side::kServer) return;
    const Header request[] = {{":method", "POST"}, {":scheme", "http"}, {":path", "/"}};
    for (int i = 0; i < 2; ++i) session.Open(request);
    Drain();
  }

  void Feed(std::string_view bytes) {
    alive = alive && session.Receive(bytes).ok();
    Drain();
  }

  void OnHeaders(StreamId stream, const HeaderBlock& block) override {
    told += "h" + std::to_string(stream) + (block.too_large ? "!" : "");
    for (const Header& header : block.fields) {
      told.append(header.name).append("=").append(header.value);
    }
    (void)StatusOfTrailers(block.fields, 200);
    (void)ParseTimeout(Find(block.fields, "grpc-timeout").value_or(""));
    if (block.too_large) session.Reset(stream, ErrorCode::kEnhanceYourCalm);
  }
  void OnData(StreamId stream, std::string_view bytes) override {
    const size_t size = bytes.size();
    const auto [it, added] = readers.try_emplace(stream, kMaxMessageBytes, Encoding::kGzip);
    MessageReader& reader = it->second;
    std::string_view message;
    while (reader.Next(bytes, message)) {
      if (message.size() > kMaxMessageBytes) std::abort();
      const auto unpacked = Unpack(reader.packing(), message, {.most = kMaxMessageBytes});
      if (unpacked.ok() && unpacked->size() > kMaxMessageBytes) std::abort();
      messages[stream] += std::string(message) + "|";
    }
    if (reader.held() > kMaxMessageBytes) std::abort();
    session.Consume(stream, size);
  }
  void OnEnd(StreamId stream) override { told += "e" + std::to_string(stream); }
  void OnClosed(StreamId stream, ErrorCode) override {
    told += "c" + std::to_string(stream);
    readers.erase(stream);
  }

  Session session;
  std::string told;
  std::map<StreamId, std::string> messages;
  std::map<StreamId, MessageReader> readers;
  bool alive = true;

 private:
  void Drain() {
    std::string out;
    while (session.wants_to_send()) {
      const size_t before = out.size();
      session.Send(out, out.size() + 1000);
      if (out.size() == before) break;
    }
    if (session.open_streams() > 8) std::abort();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t step = 1 + data[0] % 32;
  const bool server = data[1] % 2 == 0;
  std::string bytes;
  if (server) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  bytes += std::string("\0\0\0\4\0\0\0\0\0", 9);  // SETTINGS, or little behind it would be reached
  bytes.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  Settings settings;
  settings.max_concurrent_streams = 4;
  settings.max_header_list_bytes = 500;
  settings.connection_window_bytes = 1 << 20;
  const auto side = server ? Session::Side::kServer : Session::Side::kClient;
  Witness whole(side, settings);
  for (size_t at = 0; at < bytes.size(); at += 512) {
    whole.Feed(std::string_view(bytes).substr(at, 512));
  }
  Witness split(side, settings);
  for (size_t at = 0; at < bytes.size(); at += step) {
    split.Feed(std::string_view(bytes).substr(at, step));
  }
  // Answers leave sooner when there are more pieces, so that what is told may differ behind one;
  // messages of a stream may only be cut.
  for (const auto& [stream, text] : whole.messages) {
    const std::string& other = split.messages[stream];
    const size_t common = std::min(text.size(), other.size());
    if (text.substr(0, common) != other.substr(0, common)) std::abort();
  }
  return 0;
}
