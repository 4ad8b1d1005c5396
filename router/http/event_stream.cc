#include "router/http/event_stream.h"

#include <algorithm>
#include <utility>

#include "common/release.h"
#include "common/utf8.h"

namespace quire {

void EventStream::Begin() {
  if (std::exchange(begun_, true)) return;
  HeaderList headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  AddWorker(headers);
  exchange_.StartStream(200, form_.content_type, headers);
  if (!stopped_) timer_.SetIn(services_.limits.sse_keep_alive, [this] { OnTimer(); });
}

uint64_t EventStream::Write(std::string_view bytes) {
  if (!bytes.empty()) last_write_ = services_.executor.clock().Now();
  return exchange_.Write(bytes);
}

void EventStream::Empty(std::string& written) {
  constexpr size_t kKeptBytes = 16u << 10;
  written.clear();
  if (written.capacity() > kKeptBytes) Release(written);
}

void EventStream::Comment(const std::string& text) {
  if (!form_.comments) return;
  Begin();
  std::string line = ": " + text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\r', ' ');
  Write(line + "\n\n");
}

void EventStream::Stop() {
  stopped_ = true;
  timer_.Stop();
}

void EventStream::SetWorker(std::string_view worker) {
  // A worker chooses its own name: no name may end a header's line.
  if (IsVisibleAscii(worker)) worker_ = worker;
}

void EventStream::AddWorker(HeaderList& headers) const {
  if (!worker_.empty()) headers.emplace_back("X-Quire-Worker", worker_);
}

void EventStream::OnTimer() {
  const Micros silence = services_.limits.sse_keep_alive;
  if (!begun_ || services_.executor.clock().Now() >= last_write_ + silence) {
    Begin();
    Write(keep_alive_);
  }
  timer_.Set(last_write_ + silence, [this] { OnTimer(); });
}

}  // namespace quire
