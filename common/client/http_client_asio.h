// A small HTTP/1.1 client: one request, its answer complete or as server-sent events.
//
// Blocking, on the calling thread; checks `cancelled` at least ten times a second.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/client/connection.h"
#include "common/status.h"

namespace quire::client {

inline constexpr size_t kMaxAnswerBytes = 64u << 20;

struct HttpRequest {
  std::string method = "GET";
  std::string path;
  std::string body = {};
  std::string api_key = {};                       // sent as a bearer token when not empty
  std::string content_type = "application/json";  // of a body that is not empty
  std::vector<std::pair<std::string, std::string>> headers = {};  // further ones
};

struct HttpAnswer {
  int status = 0;
  std::string body;  // of an answer that is no event stream
};

// Calls `on_event` with the data of each server-sent event; false from it ends the exchange early.
// UNAVAILABLE when there is no server or it goes away; CANCELLED when `cancelled` became true.
absl::StatusOr<HttpAnswer> Exchange(const Url& url, const HttpRequest& request,
                                    const std::atomic<bool>& cancelled,
                                    const std::function<bool(std::string_view)>& on_event);

}  // namespace quire::client
