// The routes of OpenAI's Responses API and Anthropic's Messages API.
//
// Event loop only. No responses are kept: each request brings its whole conversation.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> CreateResponse(HttpServices& services, HttpRequest request,
                                     Exchange& exchange);
std::unique_ptr<Call> CountResponseInput(HttpServices& services, HttpRequest request,
                                         Exchange& exchange);
// 404, for whatever would read, delete or cancel a response.
std::unique_ptr<Call> NoResponse(HttpServices& services, HttpRequest request, Exchange& exchange);

std::unique_ptr<Call> CreateMessage(HttpServices& services, HttpRequest request,
                                    Exchange& exchange);
std::unique_ptr<Call> CountMessageTokens(HttpServices& services, HttpRequest request,
                                         Exchange& exchange);

}  // namespace quire
