// Fuzzes a client's connection of gRPC: guard, session, calls and what they ask of the pipeline.
// Nothing that a client says may break an invariant, nothing of it is left once it has gone, and
// what it is answered is bounded. The first byte says how its bytes are cut, the second how much of
// them is given: the preface, and a call whose messages the rest is.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/grpc/connection.h"
#include "common/grpc/health.h"
#include "common/grpc/reflection.h"
#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/grpc/inference_service.h"
#include "router/grpc/oip/open_inference.h"
#include "tests/router/support/fake_pipeline.h"

namespace {

constexpr size_t kMostAnswered = 64u << 20;
constexpr size_t kMostHeld = 10'000;  // by one connection

void Require(bool condition) {
  if (!condition) std::abort();
}

std::string Frame(uint8_t type, uint8_t flags, uint8_t stream, std::string_view payload) {
  std::string out;
  for (const size_t shift : {16u, 8u, 0u}) out += static_cast<char>(payload.size() >> shift);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  out += std::string(3, '\0') + static_cast<char>(stream);
  return out + std::string(payload);
}

std::string Field(std::string_view name, std::string_view value) {
  std::string out(1, '\0');
  for (const std::string_view text : {name, value}) {
    out += static_cast<char>(text.size());
    out += text;
  }
  return out;
}

constexpr const char* kPaths[] = {"/quire.v1.Inference/Generate", "/quire.v1.Inference/Tokenize",
                                  "/inference.GRPCInferenceService/ModelStreamInfer",
                                  "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                  "/grpc.health.v1.Health/Watch"};

// The bytes of a client; most of them begin as real ones do, or nothing behind would be reached.
std::string BytesOf(uint8_t mode, std::string_view rest) {
  if (mode % 8 == 0) return std::string(rest);
  std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, "");
  if (mode % 8 == 1) return bytes + std::string(rest);
  const std::string_view path = kPaths[mode / 8 % std::size(kPaths)];
  std::string block = Field(":method", "POST") + Field(":scheme", "http") + Field(":path", path) +
                      Field("content-type", "application/grpc") + Field("grpc-timeout", "10m");
  if ((mode & 0x80) != 0) block += Field("grpc-encoding", "gzip");
  bytes += Frame(1, 4, 1, block);
  if (mode % 8 == 2) return bytes + std::string(rest);
  for (; !rest.empty(); rest.remove_prefix(std::min<size_t>(rest.size(), 1000))) {
    bytes += Frame(0, 0, 1, rest.substr(0, 1000));
  }
  return bytes + Frame(0, 1, 1, "");
}

class Transport final : public quire::GrpcConnection::Transport {
 public:
  void WantsToSend() override { told = true; }
  void GiveUp() override { gave_up = true; }
  bool told = false;  // that there is something to send
  bool gave_up = false;
};

struct Edge {
  Edge() {
    services.limits.max_receive_bytes = 4096;
    services.limits.background_parse_bytes = 256;
    services.bodies =
        std::make_shared<quire::MemoryAccount>(kMostHeld, nullptr, quire::MemoryScope::kWaiting);
    host = std::make_unique<quire::GrpcHost>(quire::MakeGrpcHost(services));
    quire::AddInference(services, methods);
    quire::oip::AddOpenInference(services, methods);
    quire::AddHealth(health, methods);
    quire::AddReflection(methods);
    connection = std::make_unique<quire::GrpcConnection>(*host, methods, transport);
    connection->Start();
  }
  void Turn() {
    world.RunUntil(world.clock().Now() + quire::kMicrosPerMilli);
    Require(services.bodies->bytes() <= kMostHeld);
    if (!std::exchange(transport.told, false)) {
      return Require(!connection->session().wants_to_send());
    }
    for (std::string out;; out.clear()) {
      connection->Send(out, 16u << 10);
      if (out.empty()) break;
      connection->Written(out.size());
      answered += out.size();
      Require(answered < kMostAnswered);
    }
  }

  quire::VirtualWorld world{1};
  quire::VirtualBackground background{world.executor(), 100};
  quire::FakePipeline pipeline{world.executor()};
  quire::NullLogger log;
  quire::Metrics metrics;
  quire::EdgeMetrics counters{metrics};
  quire::GrpcServices services{{world.executor(), pipeline, background, world.rng(), counters, log},
                               {}};
  std::unique_ptr<quire::GrpcHost> host;
  quire::GrpcMethods methods;
  quire::HealthService health{methods};
  Transport transport;
  std::unique_ptr<quire::GrpcConnection> connection;
  size_t answered = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t step = data[0] % 64 == 0 ? size + 1000 : data[0] % 64;
  const std::string bytes = BytesOf(data[1], {reinterpret_cast<const char*>(data) + 2, size - 2});
  Edge edge;
  for (size_t at = 0; at < bytes.size() && !edge.connection->over(); at += step) {
    edge.connection->Receive(std::string_view(bytes).substr(at, step));
    if (step > 8 || at % 16 == 0) edge.Turn();
  }
  for (int turn = 0; turn < 20; ++turn) edge.Turn();
  edge.connection->Close();
  edge.world.RunUntil(edge.world.clock().Now() + quire::kMicrosPerSecond);
  Require(edge.pipeline.live.empty());
  Require(edge.services.bodies->bytes() == 0);
  Require(edge.connection->calls() == 0);
  return 0;
}
