#include "router/http/http_server.h"

#include <map>

#include "router/http/http_session_asio.h"

namespace quire {

struct HttpServer::State {
  explicit State(HttpServices& services) : shared{services} {}

  HttpShared shared;
  uint64_t next_number = 1;
  std::map<uint64_t, std::shared_ptr<HttpSession>> sessions;
};

HttpServer::HttpServer(HttpServices& services) : state_(std::make_unique<State>(services)) {}

HttpServer::~HttpServer() {
  while (!state_->sessions.empty()) {
    const auto session = state_->sessions.begin()->second;
    session->Close();
  }
}

void HttpServer::Adopt(EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
                       std::shared_ptr<ClientSeat> seat) {
  const uint64_t number = state_->next_number++;
  auto session = std::make_shared<HttpSession>(
      std::move(stream), state_->shared, std::move(seat),
      [state = state_.get(), number, on_closed = std::move(on_closed)] {
        state->sessions.erase(number);
        if (on_closed) on_closed();
      });
  state_->sessions.emplace(number, session);
  session->Start(std::move(first_bytes));
}

void HttpServer::StartDraining() {
  state_->shared.draining = true;
  const auto sessions = state_->sessions;  // closing one removes it
  for (const auto& [number, session] : sessions) session->StartDraining();
}

size_t HttpServer::connections() const { return state_->sessions.size(); }

}  // namespace quire
