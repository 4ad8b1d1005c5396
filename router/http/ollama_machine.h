// The routes of Ollama's API that pull and remove models.
//
// Event loop only. Under `quire serve` alone (HttpServices::models), and for operators, as those of
// machine_routes.h.
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

// Progress as lines of JSON, or one object at the end. A client that leaves ends its pull.
std::unique_ptr<Call> OllamaPull(HttpServices& services, HttpRequest request, Exchange& exchange);
// Unloads the model and takes it off the machine; 409 while requests use it.
std::unique_ptr<Call> OllamaDelete(HttpServices& services, HttpRequest request, Exchange& exchange);

}  // namespace quire
