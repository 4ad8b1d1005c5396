// Errors in OpenAI's shape: {"error":{"message","type","param","code"}}.
//
// Any thread; pure.
#pragma once

#include <string>
#include <string_view>

#include "router/core/api.h"
#include "router/http/exchange.h"

namespace quire {

int HttpStatusOf(ApiCode code);
const char* HttpReason(int status);

// The JSON object, without a trailing newline.
std::string ErrorJson(const ApiError& error);
// The whole answer, with Retry-After where the error says when to retry.
HttpResponse ErrorResponse(const ApiError& error);
// For refusals that have no ApiCode of their own (404 of a path, 405, 408, 431 …).
HttpResponse ErrorResponse(int status, std::string_view message, std::string_view code);

}  // namespace quire
