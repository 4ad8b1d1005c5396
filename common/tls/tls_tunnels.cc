#include "common/tls/tls_tunnels.h"

#include <algorithm>
#include <utility>

namespace quire {

TlsTunnels::TlsTunnels(TlsTunnel::Options options, size_t max_handshakes, Counter& evicted,
                       Events events)
    : options_(std::move(options)),
      max_handshakes_(max_handshakes),
      evicted_(evicted),
      events_(std::move(events)) {}

bool TlsTunnels::MakeRoom() {
  if (handshakes_.size() < max_handshakes_) return true;
  const auto oldest = std::find_if(handshakes_.begin(), handshakes_.end(), [this](Number number) {
    return tunnels_.at(number)->awaits_client();
  });
  if (oldest == handshakes_.end()) {
    options_.counters.handshakes_refused.Add();
    return false;
  }
  evicted_.Add();
  const std::shared_ptr<TlsTunnel> tunnel = tunnels_.at(*oldest);
  tunnel->Close();
  return true;
}

TlsTunnels::Number TlsTunnels::Begin(TlsTunnel::Socket client, TlsContext context) {
  if (!MakeRoom()) return 0;  // the socket is closed as it goes out of scope
  const Number number = ++last_;
  TlsTunnel::Options options = options_;
  options.context = std::move(context);
  auto tunnel = std::make_shared<TlsTunnel>(
      std::move(client), std::move(options),
      TlsTunnel::Events{.on_open =
                            [this, number](TlsTunnel::Socket near) {
                              handshakes_.erase(number);
                              events_.on_open(number, std::move(near));
                            },
                        .on_closed =
                            [this, number] {
                              handshakes_.erase(number);
                              tunnels_.erase(number);
                              events_.on_closed(number);
                            }});
  tunnels_.emplace(number, tunnel);
  handshakes_.insert(number);
  tunnel->Start();
  return number;
}

void TlsTunnels::CloseAll() {
  while (!tunnels_.empty()) {
    const std::shared_ptr<TlsTunnel> tunnel = tunnels_.begin()->second;
    tunnel->Close();
  }
}

}  // namespace quire
