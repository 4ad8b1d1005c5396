#include <map>
#include <utility>

#include "common/check.h"
#include "common/grpc/held_memory.h"
#include "common/grpc/reflection.h"
#include "common/grpc/server.h"
#include "common/grpc/socket_asio.h"
#include "common/runtime/timer.h"

namespace quire {

struct GrpcServer::State {
  explicit State(GrpcHost its_host) : host(std::move(its_host)) {}

  void Closed(uint64_t number);
  std::vector<std::shared_ptr<GrpcSocket>> All() const;

  GrpcHost host;
  GrpcMethods methods;
  HealthService health{methods};
  std::map<uint64_t, std::shared_ptr<GrpcSocket>> sockets;
  uint64_t next_number = 1;
  Timer grace_timer{host.executor};
  std::function<void()> shut_down;  // callbacks that wait for the last connection
};

GrpcServer::GrpcServer(GrpcHost host) : state_(std::make_unique<State>(std::move(host))) {
  AddHealth(state_->health, state_->methods);
  AddReflection(state_->methods);
}

GrpcServer::~GrpcServer() {
  state_->shut_down = nullptr;
  for (const auto& socket : state_->All()) socket->Close();
}

GrpcMethods& GrpcServer::methods() { return state_->methods; }
HealthService& GrpcServer::health() { return state_->health; }
size_t GrpcServer::connections() const { return state_->sockets.size(); }

std::vector<std::shared_ptr<GrpcSocket>> GrpcServer::State::All() const {
  std::vector<std::shared_ptr<GrpcSocket>> all;
  all.reserve(sockets.size());
  for (const auto& [number, socket] : sockets) all.push_back(socket);
  return all;
}

void GrpcServer::Adopt(EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
                       std::shared_ptr<ClientSeat> seat) {
  GrpcHost& host = state_->host;
  if (!MemoryHold(host.memory).TryResize(kConnectionBytes)) {
    stream.Close();
    return host.executor.Post([on_closed = std::move(on_closed)] {
      if (on_closed) on_closed();
    });
  }
  const uint64_t number = state_->next_number++;
  auto connection = std::make_shared<GrpcSocket>(
      std::move(stream), host, state_->methods, std::move(seat),
      [state = state_.get(), number, on_closed = std::move(on_closed)] {
        state->Closed(number);
        if (on_closed) on_closed();
      });
  state_->sockets.emplace(number, connection);
  host.counters.connections.Add();
  connection->Start(first_bytes);
  if (state_->shut_down) connection->Leave();
}

void GrpcServer::State::Closed(uint64_t number) {
  sockets.erase(number);
  if (!sockets.empty() || !shut_down) return;
  grace_timer.Stop();
  host.executor.Post(std::exchange(shut_down, nullptr));
}

void GrpcServer::Shutdown(Micros grace, absl::Status why, std::function<void()> done) {
  QUIRE_CHECK(!state_->shut_down);
  if (state_->sockets.empty()) return state_->host.executor.Post(std::move(done));
  state_->shut_down = std::move(done);
  state_->grace_timer.SetIn(grace, [this, why = std::move(why)] { CancelCalls(why); });
  for (const auto& socket : state_->All()) socket->Leave();
}

void GrpcServer::CancelCalls(const absl::Status& why) {
  for (const auto& socket : state_->All()) socket->CancelCalls(why);
}

}  // namespace quire
