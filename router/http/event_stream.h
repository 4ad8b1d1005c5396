// The server-sent events of one answer: when they begin, what keeps a silent stream alive, and the
// header that names the worker.
//
// Owner: a call, whose services and exchange outlive it; event loop only.
//  1. Until the stream has begun, an error may still be a real HTTP status.
//  2. After Stop no timer runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/runtime/timer.h"
#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

class EventStream {
 public:
  EventStream(HttpServices& services, Exchange& exchange)
      : services_(services), exchange_(exchange) {}

  // The stream begins by itself after sse_commit_after.
  void BeginInTime() {
    timer_.SetIn(services_.limits.sse_commit_after, [this] { OnTimer(); });
  }
  // What breaks a silence; a comment where nothing is set. A literal.
  void KeepAliveBy(std::string_view bytes) { keep_alive_ = bytes; }
  void Begin();
  bool begun() const { return begun_; }
  // Returns how many bytes have been queued in all. Writing none is fine: the head of the answer
  // may wait for it.
  uint64_t Write(std::string_view bytes);
  // A comment for people who watch a stream that has not begun; begins it.
  void Comment(const std::string& text);
  void Stop();

  // The worker that began the answer, for a header of any answer that follows.
  void SetWorker(std::string_view worker);
  void AddWorker(HeaderList& headers) const;

 private:
  void OnTimer();

  HttpServices& services_;
  Exchange& exchange_;
  std::string worker_;
  std::string_view keep_alive_ = ": keep-alive\n\n";
  Micros last_write_ = 0;
  Timer timer_{services_.executor};  // begins, then keeps alive
  bool begun_ = false;
  bool stopped_ = false;
};

}  // namespace quire
