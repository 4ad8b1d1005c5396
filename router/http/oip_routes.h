// The routes of the Open Inference Protocol under /v2, as handlers of the table in routes.cc.
//
// Event loop only. Errors are {"error": "…"} here.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> OipServer(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> OipLive(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> OipReady(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> OipModels(HttpServices& services, HttpRequest request, Exchange& exchange);
// GET of /v2/models/NAME[/versions/V][/ready] and POST of …/infer, …/generate, …/generate_stream.
std::unique_ptr<Call> OipModel(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> OipAsk(HttpServices& services, HttpRequest request, Exchange& exchange);

HttpResponse OipError(const ApiError& error);

}  // namespace quire
