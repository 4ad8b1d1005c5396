// One HTTP request and the way back to its client, without sockets: handlers use only this
// interface.
//
// Owner: the HTTP session that read the request; everything happens on the router's event loop.
//
// Invariants:
// 1. A request gets exactly one Reply, or one StartStream followed by Writes and one of EndStream
//    and Abort.
// 2. The session owns the running Call and destroys it when the answer has been written or the
//    client is gone, never from inside a function that the Call itself is running.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/memory_account.h"
#include "router/core/tenant.h"

namespace quire {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;        // "GET"
  std::string path;          // percent-decoded, without the query
  std::string query;         // as it came, without the question mark
  std::string content_type;  // its first 256 bytes
  std::string body;
  std::string request_id;  // from x-request-id where it is usable, else made by the session
  std::string traceparent;
  std::string tracestate;   // the part that is passed on
  std::string json_length;  // inference-header-content-length, as it came
  std::string session;
  std::string timeout;     // x-quire-timeout, as it came
  std::string timeout_ms;  // x-request-timeout-ms, as it came
  std::shared_ptr<const TenantProfile>
      tenant;  // from its credential; nullptr: no credential was required
  std::shared_ptr<const MemoryHold> hold;  // counts the body's bytes until it is parsed
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HeaderList headers;
  std::string body;
  std::shared_ptr<const std::string> shared_body = nullptr;  // instead of it, for many clients
  std::string error = {};  // of a refusal: its sentence, for APIs whose errors have another shape
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void Reply(HttpResponse response) = 0;
  // A header that any answer carries: W3C's traceresponse. Empty: none.
  virtual void SetTraceResponse(std::string /*value*/) {}
  // Status line and headers leave with the first Write, which may be of no bytes: the client gets
  // them in one piece with its first data.
  virtual void StartStream(int status, std::string_view content_type,
                           const HeaderList& headers) = 0;
  // Queues bytes of the body. Returns how many body bytes have been queued in all.
  virtual uint64_t Write(std::string_view bytes) = 0;
  virtual void EndStream() = 0;
  // Closes the connection in mid-answer: the client sees that the answer is cut short.
  virtual void Abort() = 0;
};

// A request that is being answered. Destroying it cancels all its work.
class Call {
 public:
  virtual ~Call() = default;
  // The network has taken the first `total` body bytes.
  virtual void OnWritten(uint64_t total) { (void)total; }
};

}  // namespace quire
