#include "router/http/event_stream.h"

#include <utility>

#include "router/core/utf8.h"

namespace quire {

void EventStream::Begin() {
  if (std::exchange(begun_, true)) return;
  HeaderList headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  AddWorker(headers);
  exchange_.StartStream(200, "text/event-stream; charset=utf-8", headers);
  if (!stopped_) ArmTimer(services_.limits.sse_keep_alive);
}

uint64_t EventStream::Write(std::string_view bytes) {
  if (!bytes.empty()) last_write_ = services_.executor.clock().Now();
  return exchange_.Write(bytes);
}

void EventStream::Stop() {
  stopped_ = true;
  if (timer_ != 0) services_.executor.Cancel(std::exchange(timer_, 0));
}

void EventStream::SetWorker(std::string_view worker) {
  // A worker names itself: no name may end a header's line.
  if (IsVisibleAscii(worker)) worker_ = worker;
}

void EventStream::AddWorker(HeaderList& headers) const {
  if (!worker_.empty()) headers.emplace_back("X-Quire-Worker", worker_);
}

void EventStream::ArmTimer(Micros delay) {
  if (timer_ != 0) services_.executor.Cancel(timer_);
  timer_ = services_.executor.PostAt(services_.executor.clock().Now() + delay, [this] {
    timer_ = 0;
    OnTimer();
  });
}

void EventStream::OnTimer() {
  const Micros now = services_.executor.clock().Now();
  const Micros silence = services_.limits.sse_keep_alive;
  if (begun_ && now < last_write_ + silence) return ArmTimer(last_write_ + silence - now);
  Begin();
  Write(": keep-alive\n\n");
  ArmTimer(silence);
}

}  // namespace quire
