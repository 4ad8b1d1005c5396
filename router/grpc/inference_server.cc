#include "router/grpc/inference_server.h"

#include <utility>

#include "router/grpc/inference_service.h"

namespace quire {

InferenceServer::InferenceServer(GrpcServices& services)
    : services_(services), server_(MakeGrpcHost(services)) {
  AddInference(services, server_.methods());
  RefreshHealth();
}

InferenceServer::~InferenceServer() {
  if (health_timer_ != 0) services_.executor.Cancel(health_timer_);
}

void InferenceServer::RefreshHealth() {
  const Pipeline& pipeline = services_.pipeline;
  server_.health().Set(!services_.leaving && pipeline.Ready() && pipeline.Healthy());
  if (services_.leaving) return;
  Executor& executor = services_.executor;
  const Micros next = executor.clock().Now() + services_.limits.health_interval;
  health_timer_ = executor.PostAt(next, [this] {
    health_timer_ = 0;
    RefreshHealth();
  });
}

void InferenceServer::StartDraining() {
  services_.leaving = true;
  if (health_timer_ != 0) services_.executor.Cancel(std::exchange(health_timer_, 0));
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
