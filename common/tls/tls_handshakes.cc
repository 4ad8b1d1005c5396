#include "common/tls/tls_handshakes.h"

#include <algorithm>
#include <utility>

namespace quire {

TlsHandshakes::TlsHandshakes(TlsHandshake::Options options, size_t max_handshakes, Counter& evicted)
    : options_(std::move(options)), max_handshakes_(max_handshakes), evicted_(evicted) {}

bool TlsHandshakes::MakeRoom() {
  if (under_way_.size() < max_handshakes_) return true;
  const auto oldest = std::find_if(under_way_.begin(), under_way_.end(),
                                   [](const auto& entry) { return entry.second->awaits_client(); });
  if (oldest == under_way_.end()) {
    options_.counters.handshakes_refused.Add();
    return false;
  }
  evicted_.Add();
  const std::shared_ptr<TlsHandshake> handshake = oldest->second;
  handshake->Close();
  return true;
}

bool TlsHandshakes::Begin(TlsHandshake::Socket client, TlsContext context,
                          TlsHandshake::Done done) {
  if (!MakeRoom()) return false;  // the socket is closed as it goes out of scope
  const uint64_t number = ++last_;
  TlsHandshake::Options options = options_;
  options.context = std::move(context);
  auto handshake = std::make_shared<TlsHandshake>(
      std::move(client), std::move(options),
      [this, number, done = std::move(done)](std::optional<EdgeStream> stream) {
        under_way_.erase(number);
        done(std::move(stream));
      });
  under_way_.emplace(number, handshake);
  handshake->Start();
  return true;
}

void TlsHandshakes::CloseAll() {
  while (!under_way_.empty()) {
    const std::shared_ptr<TlsHandshake> handshake = under_way_.begin()->second;
    handshake->Close();
  }
}

}  // namespace quire
