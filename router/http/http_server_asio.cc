#include "router/http/http_server.h"

#include <boost/asio/io_context.hpp>

#include <map>

#include "common/runtime/adopt_asio.h"
#include "router/http/http_session_asio.h"

namespace quire {

struct HttpServer::State {
  State(boost::asio::io_context& loop, HttpServices& services) : context(loop), shared{services} {}

  boost::asio::io_context& context;
  HttpShared shared;
  uint64_t next_number = 1;
  std::map<uint64_t, std::shared_ptr<HttpSession>> sessions;
};

HttpServer::HttpServer(boost::asio::io_context& context, HttpServices& services)
    : state_(std::make_unique<State>(context, services)) {}

HttpServer::~HttpServer() {
  while (!state_->sessions.empty()) {
    const auto session = state_->sessions.begin()->second;
    session->Close();
  }
}

void HttpServer::Adopt(int fd, std::string first_bytes, std::function<void()> on_closed) {
  const uint64_t number = state_->next_number++;
  auto session = std::make_shared<HttpSession>(
      AdoptSocket(state_->context, fd), state_->shared,
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
