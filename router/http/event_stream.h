// The stream of one answer, server-sent events or lines of JSON: when it begins, what keeps a
// silent one alive, and the header that names the worker.
//
// Owner: a call, whose services and exchange outlive it; event loop only.
//  1. Until the stream has begun, an error may still be a real HTTP status.
//  2. After Stop no timer runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/runtime/timer.h"
#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

// Literals.
struct StreamForm {
  std::string_view content_type = "text/event-stream; charset=utf-8";
  std::string_view keep_alive = ": keep-alive\n\n";
  bool comments = true;  // a line that begins with a colon is for people
};

class EventStream {
 public:
  EventStream(HttpServices& services, Exchange& exchange)
      : services_(services), exchange_(exchange) {}

  // The stream begins by itself after sse_commit_after.
  void BeginInTime() {
    timer_.SetIn(services_.limits.sse_commit_after, [this] { OnTimer(); });
  }
  void Use(const StreamForm& form) {
    form_ = form;
    keep_alive_ = form.keep_alive;
  }
  // What breaks a silence, in place of what the form says.
  void KeepAliveBy(std::string bytes) { keep_alive_ = std::move(bytes); }
  void Begin();
  bool begun() const { return begun_; }
  // Returns how many bytes have been queued in all. Writing none is fine: the head of the answer
  // may wait for it.
  uint64_t Write(std::string_view bytes);
  // Empties a buffer whose bytes have been written; one that grew large gives its memory back.
  static void Empty(std::string& written);
  // A comment for people who watch a stream that has not begun; begins it. Nothing where the form
  // has no comments.
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
  StreamForm form_;
  std::string keep_alive_{form_.keep_alive};
  Micros last_write_ = 0;
  Timer timer_{services_.executor};  // begins, then keeps alive
  bool begun_ = false;
  bool stopped_ = false;
};

}  // namespace quire
