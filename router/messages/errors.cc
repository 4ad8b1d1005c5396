#include "router/messages/errors.h"

#include "common/json/json.h"

namespace quire::messages {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case kOverloaded:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

int StatusOf(ApiCode code) {
  switch (code) {
    case ApiCode::kInvalidArgument:
    case ApiCode::kConflict:
    case ApiCode::kCancelled:
      return 400;
    case ApiCode::kUnauthenticated:
      return 401;
    case ApiCode::kPermissionDenied:
      return 403;
    case ApiCode::kNotFound:
      return 404;
    case ApiCode::kTooLarge:
      return 413;
    case ApiCode::kRateLimited:
      return 429;
    case ApiCode::kInternal:
    case ApiCode::kUnimplemented:
      return 500;
    case ApiCode::kUnavailable:
      return kOverloaded;
    case ApiCode::kDeadlineExceeded:
      return 504;
  }
  return 500;
}

int StatusOf(int status) { return status == 503 ? kOverloaded : status; }

std::string ErrorJson(int status, std::string_view message, std::string_view request_id) {
  std::string out = "{\"type\":\"error\",\"error\":{\"type\":\"";
  out += TypeOf(status);
  out += "\",\"message\":";
  json::AppendQuoted(message, out);
  out += '}';
  if (!request_id.empty()) {
    out += ",\"request_id\":";
    json::AppendQuoted(request_id, out);
  }
  return out + '}';
}

bool IsPath(std::string_view path) {
  constexpr std::string_view kPath = "/v1/messages";
  return path.starts_with(kPath) && (path.size() == kPath.size() || path[kPath.size()] == '/');
}

}  // namespace quire::messages
