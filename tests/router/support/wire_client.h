// A client of gRPC that says any bytes at all to a GrpcConnection, on virtual time, and reads what
// comes back frame by frame.
#pragma once

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grpc/connection.h"
#include "common/grpc/health.h"
#include "common/grpc/reflection.h"
#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "quire/v1/inference.pb.h"
#include "router/grpc/inference_service.h"
#include "router/grpc/oip/open_inference.h"
#include "tests/router/support/fake_pipeline.h"

namespace quire::wire {

using HeaderPairs = std::vector<std::pair<std::string, std::string>>;

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9
};
inline constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;
// Error codes of HTTP/2.
inline constexpr int kNoError = 0, kProtocolError = 1, kInternalError = 2, kStreamClosed = 5,
                     kRefusedStream = 7, kCancel = 8, kCalm = 11;
inline const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string Number(uint64_t value, int bytes) {
  std::string out;
  while (bytes-- > 0) out += static_cast<char>(value >> (8 * bytes));
  return out;
}

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string out = Number(payload.size(), 3);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  return out + Number(stream, 4) + std::string(payload);
}

// Literal fields without indexing, new names (RFC 7541, section 6.2.2); lengths below 2^14.
inline std::string Block(const HeaderPairs& fields) {
  const auto text = [](const std::string& value) {
    std::string out;
    if (value.size() < 127) {
      out += static_cast<char>(value.size());
    } else {
      size_t rest = value.size() - 127;
      out += '\x7f';
      for (; rest >= 128; rest >>= 7) out += static_cast<char>(0x80 | (rest & 0x7f));
      out += static_cast<char>(rest);
    }
    return out + value;
  };
  std::string out;
  for (const auto& [name, value] : fields) out += '\0' + text(name) + text(value);
  return out;
}

inline HeaderPairs Post(const std::string& path, const HeaderPairs& more = {}) {
  HeaderPairs fields = {{":method", "POST"},
                        {":scheme", "http"},
                        {":path", path},
                        {":authority", "x"},
                        {"content-type", "application/grpc"},
                        {"te", "trailers"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

inline std::string Headers(uint32_t stream, const HeaderPairs& fields, uint8_t flags = 0) {
  return Frame(kHeaders, kEndHeaders | flags, stream, Block(fields));
}

inline std::string Message(std::string_view bytes, char flag = '\0') {
  return flag + Number(bytes.size(), 4) + std::string(bytes);
}

// In frames that any server takes.
inline std::string Data(uint32_t stream, std::string_view bytes, uint8_t flags = 0) {
  constexpr size_t kMost = 16'384;
  std::string out;
  for (; bytes.size() > kMost; bytes.remove_prefix(kMost)) {
    out += Frame(kData, 0, stream, bytes.substr(0, kMost));
  }
  return out + Frame(kData, flags, stream, bytes);
}

inline std::string Setting(uint16_t id, uint32_t value) {
  return Frame(kSettings, 0, 0, Number(id, 2) + Number(value, 4));
}

inline const std::string kGenerate = "/quire.v1.Inference/Generate";

inline std::string GenerateBytes(int max_tokens = 3, const std::string& text = "x") {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.set_request_id("rid");
  return request.SerializeAsString();
}

// A whole call of Generate.
inline std::string Call(uint32_t stream, const std::string& message = GenerateBytes()) {
  return Headers(stream, Post(kGenerate)) + Data(stream, Message(message), kEndStream);
}

// What a stream was answered.
struct Answer {
  HeaderPairs headers, trailers;
  std::vector<std::string> messages;
  std::string rest;  // of a message that is not whole
  bool ended = false;
  int reset = -1;  // its code

  static std::string Find(const HeaderPairs& fields, const std::string& name) {
    for (const auto& [key, value] : fields) {
      if (key == name) return value;
    }
    return "";
  }
  std::string header(const std::string& name) const { return Find(headers, name); }
  // Of the trailers, or of the only headers.
  std::string trailer(const std::string& name) const {
    return Find(trailers.empty() ? headers : trailers, name);
  }
  std::string status() const { return trailer("grpc-status"); }
};

class WireClient : public GrpcConnection::Transport {
 public:
  explicit WireClient(const GrpcEdgeLimits& limits = {}, size_t max_total_body_bytes = 1u << 30,
                      size_t max_memory = 1u << 30)
      : services{{world.executor(), pipeline, background, world.rng(), counters, log}, limits} {
    services.memory = std::make_shared<MemoryAccount>(max_memory);
    services.bodies =
        std::make_shared<MemoryAccount>(max_total_body_bytes, nullptr, MemoryScope::kWaiting);
    host = std::make_unique<GrpcHost>(MakeGrpcHost(services));
    AddInference(services, methods);
    oip::AddOpenInference(services, methods);
    AddHealth(health, methods);
    AddReflection(methods);
    nghttp2_hd_inflate_new(&inflater_);
    connection = std::make_unique<GrpcConnection>(*host, methods, *this);
    connection->Start();
  }
  ~WireClient() override {
    connection->Close();
    nghttp2_hd_inflate_del(inflater_);
    connection.reset();
    Run();
    EXPECT_EQ(pipeline.live.size(), 0u);
    EXPECT_EQ(services.bodies->bytes(), 0u);
    host.reset();
    EXPECT_EQ(services.memory->bytes(), 0u);
  }

  // Says hello as clients do; `settings` are frames.
  void Hello(const std::string& settings = Frame(kSettings, 0, 0, "")) {
    Say(kPreface + settings);
    Say(Frame(kSettings, kAck, 0, ""));
  }
  void Say(std::string_view bytes) {
    connection->Receive(bytes);
    Hear();
  }
  // Lets the world go on for so long, and reads what was sent meanwhile.
  void Wait(Micros time) {
    const Micros until = world.clock().Now() + time;
    while (world.clock().Now() < until) {
      world.RunUntil(std::min(until, world.clock().Now() + 1000));
      Hear();
    }
  }
  // As a socket does: nothing is asked of the connection that it has not said it has.
  void Hear() {
    while (!closed) {
      Run();
      if (!std::exchange(told_, false)) break;
      for (std::string out;; out.clear()) {
        connection->Send(out, 64u << 10);
        if (out.empty()) break;
        connection->Written(out.size());
        in_ += out;
      }
      if (!connection->over()) continue;
      closed = true;
      connection->Close();
    }
    ReadFrames();
  }

  void WantsToSend() override { told_ = true; }
  void GiveUp() override {
    gave_up = true;
    connection->Close();
  }

  VirtualWorld world{1};
  VirtualBackground background{world.executor(), 1000};
  FakePipeline pipeline{world.executor()};
  NullLogger log;
  Metrics metrics;
  EdgeMetrics counters{metrics};
  GrpcMethods methods;
  HealthService health{methods};
  GrpcServices services;
  std::unique_ptr<GrpcHost> host;
  std::unique_ptr<GrpcConnection> connection;

  std::map<uint32_t, Answer> answers;
  int settings_acked = 0;
  std::vector<std::string> pings;  // of the server
  int pongs = 0;
  std::vector<uint32_t> last_streams;                 // of its GOAWAYs
  int went_away = -1;                                 // the code of the last one
  std::string last_words;                             // of the last one that had any
  uint64_t stream_window = 0, connection_window = 0;  // that it has given back
  bool closed = false;                                // by the server
  bool gave_up = false;

 private:
  // What is due now; the fake pipeline works in many turns.
  void Run() { world.RunUntil(world.clock().Now()); }

  static uint64_t ToNumber(std::string_view bytes) {
    uint64_t value = 0;
    for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }

  void ReadFrames() {
    while (in_.size() >= 9 && in_.size() >= 9 + ToNumber(in_.substr(0, 3))) {
      const size_t length = ToNumber(in_.substr(0, 3));
      const auto stream = static_cast<uint32_t>(ToNumber(in_.substr(5, 4)));
      const std::string payload = in_.substr(9, length);
      OnFrame(static_cast<uint8_t>(in_[3]), static_cast<uint8_t>(in_[4]), stream, payload);
      in_.erase(0, 9 + length);
    }
  }

  void OnFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
    if (type == kSettings && (flags & kAck) != 0) ++settings_acked;
    if (type == kPing && (flags & kAck) != 0) ++pongs;
    if (type == kPing && (flags & kAck) == 0) pings.push_back(payload);
    if (type == kGoAway) {
      last_streams.push_back(static_cast<uint32_t>(ToNumber(payload.substr(0, 4))));
      went_away = static_cast<int>(ToNumber(payload.substr(4, 4)));
      if (payload.size() > 8) last_words = payload.substr(8);
    }
    if (type == kWindowUpdate) {
      (stream == 0 ? connection_window : stream_window) += ToNumber(payload);
    }
    if (stream == 0 || type == kWindowUpdate) return;
    Answer& answer = answers[stream];
    if (type == kReset) answer.reset = static_cast<int>(ToNumber(payload));
    if (type == kHeaders) {
      const bool first = answer.headers.empty();
      (first ? answer.headers : answer.trailers) = Inflate(payload);
      EXPECT_TRUE(first || (flags & kEndStream) != 0) << "trailers end a stream";
    }
    if (type == kData) TakeData(payload, answer);
    if (type == kHeaders || type == kData) answer.ended |= (flags & kEndStream) != 0;
  }

  static void TakeData(const std::string& payload, Answer& answer) {
    answer.rest += payload;
    while (answer.rest.size() >= 5) {
      const size_t size = ToNumber(answer.rest.substr(1, 4));
      if (answer.rest.size() < 5 + size) return;
      answer.messages.push_back(answer.rest.substr(5, size));
      answer.rest.erase(0, 5 + size);
    }
  }

  HeaderPairs Inflate(std::string_view block) {
    HeaderPairs fields;
    int flags = 0;
    while (!block.empty() || (flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
      nghttp2_nv field;
      const ssize_t taken =
          nghttp2_hd_inflate_hd2(inflater_, &field, &flags,
                                 reinterpret_cast<const uint8_t*>(block.data()), block.size(), 1);
      if (taken < 0) {
        ADD_FAILURE() << "no header block";
        break;
      }
      block.remove_prefix(static_cast<size_t>(taken));
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0) continue;
      fields.emplace_back(std::string(reinterpret_cast<char*>(field.name), field.namelen),
                          std::string(reinterpret_cast<char*>(field.value), field.valuelen));
    }
    nghttp2_hd_inflate_end_headers(inflater_);
    return fields;
  }

  bool told_ = false;  // that there is something to send
  std::string in_;
  nghttp2_hd_inflater* inflater_ = nullptr;
};

}  // namespace quire::wire
