// The whole edge on loopback ports chosen by the system: front, HTTP and gRPC over a fake pipeline.
#pragma once

#include <memory>
#include <vector>

#include "router/front/front.h"
#include "router/grpc/inference_server.h"
#include "router/grpc/oip/open_inference.h"
#include "tests/router/support/edge_harness.h"

namespace quire {

class GrpcEdge : public EdgeHarness {
 public:
  explicit GrpcEdge(FrontOptions options = {}, const HttpLimits& http_limits = {},
                    std::shared_ptr<const KeyTable> key_table = nullptr,
                    const GrpcEdgeLimits& grpc_limits = {})
      : EdgeHarness(http_limits, std::move(key_table)),
        grpc_services{{executor, pipeline, background, rng, counters, log}, grpc_limits} {
    grpc_services.keys = services.keys;
    grpc_services.bodies = services.bodies;
    grpc_services.limits.health_interval = 1000;  // microseconds
    options.ports = {{0, "--port"}, {0, "--grpc-port", true}};
    options.handshakes = &background;
    OnLoop([&] {
      server = std::make_unique<InferenceServer>(grpc_services);
      oip::AddOpenInference(grpc_services, server->methods());
      front = std::make_unique<Front>(
          executor.context(), services, options,
          [this](EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
                 std::shared_ptr<ClientSeat> seat) {
            server->Adopt(std::move(stream), std::move(first_bytes), std::move(on_closed),
                          std::move(seat));
          });
      EXPECT_TRUE(front->Listen().ok());
      ports = front->ports();
    });
  }
  ~GrpcEdge() {
    OnLoop([&] {
      front.reset();
      server.reset();
    });
  }

  std::string Target(size_t port = 1) const { return "127.0.0.1:" + std::to_string(ports[port]); }

  GrpcServices grpc_services;
  std::unique_ptr<InferenceServer> server;
  std::unique_ptr<Front> front;
  std::vector<uint16_t> ports;
};

}  // namespace quire
