#include "router/grpc/inference_server.h"

#include <utility>

#include "router/grpc/inference_service.h"

namespace quire {

InferenceServer::InferenceServer(GrpcServices& services)
    : services_(services), server_(MakeGrpcHost(services)) {
  AddInference(services, server_.methods());
  RefreshHealth();
}

void InferenceServer::RefreshHealth() {
  const Pipeline& pipeline = services_.pipeline;
  server_.health().Set(!services_.leaving && pipeline.Ready() && pipeline.Healthy());
  if (services_.leaving) return;
  health_timer_.SetIn(services_.limits.health_interval, [this] { RefreshHealth(); });
}

void InferenceServer::StartDraining() {
  services_.leaving = true;
  health_timer_.Stop();
  RefreshHealth();
}

void InferenceServer::Shutdown(Micros grace, std::function<void()> done) {
  server_.Shutdown(grace, ShutDown(), std::move(done));
}

void InferenceServer::CancelCalls() { server_.CancelCalls(ShutDown()); }

absl::Status InferenceServer::ShutDown() {
  return absl::UnavailableError("this router has shut down");
}

}  // namespace quire
