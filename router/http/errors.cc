#include "router/http/errors.h"

#include "common/json/json.h"

namespace quire {
namespace {

struct StatusText {
  int status;
  const char* reason;
};
constexpr StatusText kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {529, "Overloaded"},
};

const char* TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view CodeOf(const ApiError& error) {
  if (!error.reason.empty()) return error.reason;
  switch (error.code) {
    case ApiCode::kInvalidArgument:
      return error.param.empty() ? "invalid_request" : "invalid_value";
    case ApiCode::kUnauthenticated:
      return "invalid_api_key";
    case ApiCode::kPermissionDenied:
      return "permission_denied";
    case ApiCode::kNotFound:
      return error.param == "model" ? "model_not_found" : "not_found";
    case ApiCode::kConflict:
      return "conflict";
    case ApiCode::kTooLarge:
      return "payload_too_large";
    case ApiCode::kRateLimited:
      return "rate_limit_exceeded";
    case ApiCode::kCancelled:
      return "cancelled";
    case ApiCode::kInternal:
      return "internal_error";
    case ApiCode::kUnimplemented:
      return "unsupported";
    case ApiCode::kUnavailable:
      return "unavailable";
    case ApiCode::kDeadlineExceeded:
      return "deadline_exceeded";
  }
  return "internal_error";
}

struct ErrorFields {
  std::string_view message;
  std::string_view type;
  std::string_view param;
  std::string_view code;
};

std::string WriteError(const ErrorFields& fields) {
  std::string out = "{\"error\":{\"message\":";
  json::AppendQuoted(fields.message, out);
  out += ",\"type\":";
  json::AppendQuoted(fields.type, out);
  out += ",\"param\":";
  if (fields.param.empty()) {
    out += "null";
  } else {
    json::AppendQuoted(fields.param, out);
  }
  out += ",\"code\":";
  json::AppendQuoted(fields.code, out);
  out += "}}";
  return out;
}

}  // namespace

int HttpStatusOf(ApiCode code) {
  switch (code) {
    case ApiCode::kInvalidArgument:
      return 400;
    case ApiCode::kUnauthenticated:
      return 401;
    case ApiCode::kPermissionDenied:
      return 403;
    case ApiCode::kNotFound:
      return 404;
    case ApiCode::kConflict:
      return 409;
    case ApiCode::kTooLarge:
      return 413;
    case ApiCode::kRateLimited:
      return 429;
    case ApiCode::kCancelled:
      return 499;
    case ApiCode::kInternal:
      return 500;
    case ApiCode::kUnimplemented:
      return 501;
    case ApiCode::kUnavailable:
      return 503;
    case ApiCode::kDeadlineExceeded:
      return 504;
  }
  return 500;
}

const char* HttpReason(int status) {
  for (const StatusText& entry : kReasons) {
    if (entry.status == status) return entry.reason;
  }
  return "Unknown";
}

std::string ErrorJson(const ApiError& error) {
  return WriteError({error.message, TypeOf(HttpStatusOf(error.code)), error.param, CodeOf(error)});
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = HttpStatusOf(error.code);
  response.body = ErrorJson(error);
  response.error = error.message;
  if (error.code == ApiCode::kRateLimited || error.code == ApiCode::kUnavailable) {
    // OpenAI's clients do not retry at all when the delay is more than two minutes.
    const uint32_t wait_ms = std::clamp<uint32_t>(error.retry_after_ms, 1000, 119'000);
    response.headers.emplace_back("Retry-After", std::to_string((wait_ms + 999) / 1000));
    if (error.retry_after_ms > 0) {
      response.headers.emplace_back("Retry-After-Ms", std::to_string(wait_ms));
    }
  }
  return response;
}

HttpResponse ErrorResponse(int status, std::string_view message, std::string_view code) {
  HttpResponse response;
  response.status = status;
  response.body = WriteError({message, TypeOf(status), "", code});
  response.error = message;
  return response;
}

}  // namespace quire
