// The routes of OpenAI's Responses API and Anthropic's Messages API.
//
// Event loop only. Without a store of responses each request brings its whole conversation.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> CreateResponse(HttpServices& services, HttpRequest request,
                                     Exchange& exchange);
std::unique_ptr<Call> CountResponseInput(HttpServices& services, HttpRequest request,
                                         Exchange& exchange);
// Of one kept response, by the path: the response itself or its input, and its end. Each is 404
// where the tenant keeps no such response.
std::unique_ptr<Call> ReadResponse(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> DeleteResponse(HttpServices& services, HttpRequest request,
                                     Exchange& exchange);
std::unique_ptr<Call> CancelResponse(HttpServices& services, HttpRequest request,
                                     Exchange& exchange);

std::unique_ptr<Call> CreateMessage(HttpServices& services, HttpRequest request,
                                    Exchange& exchange);
std::unique_ptr<Call> CountMessageTokens(HttpServices& services, HttpRequest request,
                                         Exchange& exchange);

}  // namespace quire
