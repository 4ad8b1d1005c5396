#include <sys/socket.h>

#include <boost/asio/io_context.hpp>

#include <map>
#include <utility>

#include "common/check.h"
#include "router/grpc/health.h"
#include "router/grpc/inference_server.h"
#include "router/grpc/inference_service.h"
#include "router/grpc/reflection.h"
#include "router/grpc/socket_asio.h"

namespace quire {

struct InferenceServer::State {
  State(boost::asio::io_context& loop, GrpcServices& grpc_services)
      : context(loop), services(grpc_services) {}

  void RefreshHealth();
  void Closed(uint64_t number);
  std::vector<std::shared_ptr<GrpcSocket>> All() const;

  boost::asio::io_context& context;
  GrpcServices& services;
  GrpcMethods methods;
  HealthService health{methods};
  std::map<uint64_t, std::shared_ptr<GrpcSocket>> sockets;
  uint64_t next_number = 1;
  TimerId health_timer = 0;
  TimerId grace_timer = 0;
  bool draining = false;
  std::function<void()> shut_down;  // what waits for the last connection
};

InferenceServer::InferenceServer(boost::asio::io_context& context, GrpcServices& services)
    : state_(std::make_unique<State>(context, services)) {
  AddInference(state_->methods);
  AddHealth(state_->health, state_->methods);
  AddReflection(state_->methods);
  state_->RefreshHealth();
}

InferenceServer::~InferenceServer() {
  state_->shut_down = nullptr;
  for (TimerId& timer : {std::ref(state_->health_timer), std::ref(state_->grace_timer)}) {
    if (timer != 0) state_->services.executor.Cancel(std::exchange(timer, 0));
  }
  for (const auto& socket : state_->All()) socket->Close();
}

GrpcMethods& InferenceServer::methods() { return state_->methods; }

std::vector<std::shared_ptr<GrpcSocket>> InferenceServer::State::All() const {
  std::vector<std::shared_ptr<GrpcSocket>> all;
  all.reserve(sockets.size());
  for (const auto& [number, socket] : sockets) all.push_back(socket);
  return all;
}

void InferenceServer::Adopt(int fd, std::string first_bytes, std::function<void()> on_closed) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    address.ss_family = AF_INET;
  }
  GrpcSocket::Socket socket(state_->context);
  boost::system::error_code ignored;
  socket.assign(boost::asio::generic::stream_protocol(address.ss_family, 0), fd, ignored);
  const uint64_t number = state_->next_number++;
  auto connection = std::make_shared<GrpcSocket>(
      std::move(socket), state_->services, state_->methods,
      [state = state_.get(), number, on_closed = std::move(on_closed)] {
        state->Closed(number);
        if (on_closed) on_closed();
      });
  state_->sockets.emplace(number, connection);
  state_->services.counters.http2_connections.Add();
  connection->Start(first_bytes);
  if (state_->shut_down) connection->Leave();
}

void InferenceServer::State::Closed(uint64_t number) {
  sockets.erase(number);
  if (!sockets.empty() || !shut_down) return;
  if (grace_timer != 0) services.executor.Cancel(std::exchange(grace_timer, 0));
  services.executor.Post(std::exchange(shut_down, nullptr));
}

void InferenceServer::State::RefreshHealth() {
  health.Set(!draining && services.pipeline.Ready() && services.pipeline.Healthy());
  if (draining) return;
  health_timer = services.executor.PostAt(
      services.executor.clock().Now() + services.limits.health_interval, [this] {
        health_timer = 0;
        RefreshHealth();
      });
}

void InferenceServer::StartDraining() {
  state_->services.leaving = true;
  state_->draining = true;
  if (state_->health_timer != 0) {
    state_->services.executor.Cancel(std::exchange(state_->health_timer, 0));
  }
  state_->RefreshHealth();
}

void InferenceServer::Shutdown(Micros grace, std::function<void()> done) {
  QUIRE_CHECK(!state_->shut_down);
  Executor& executor = state_->services.executor;
  if (state_->sockets.empty()) return executor.Post(std::move(done));
  state_->shut_down = std::move(done);
  state_->grace_timer = executor.PostAt(executor.clock().Now() + grace, [this] {
    state_->grace_timer = 0;
    CancelCalls();
  });
  for (const auto& socket : state_->All()) socket->Leave();
}

void InferenceServer::CancelCalls() {
  for (const auto& socket : state_->All()) {
    socket->CancelCalls(absl::UnavailableError("this router has shut down"));
  }
}

}  // namespace quire
