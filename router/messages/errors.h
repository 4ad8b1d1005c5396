// Errors in Anthropic's shape: {"type":"error","error":{"type","message"},"request_id"}.
//
// Any thread; pure.
#pragma once

#include <string>
#include <string_view>

#include "router/core/api.h"

namespace quire::messages {

// 529 for overload, where other APIs have 503.
inline constexpr int kOverloaded = 529;
int StatusOf(ApiCode code);
// Of the status that another API has.
int StatusOf(int status);

// Without a request's id where none is given.
std::string ErrorJson(int status, std::string_view message, std::string_view request_id);

// Whether the path is one of this API.
bool IsPath(std::string_view path);

}  // namespace quire::messages
