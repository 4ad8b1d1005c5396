// The routes of a machine whose models are loaded on demand: the repository of the Open Inference
// Protocol (index, load, unload), and vLLM's names for sleep.
//
// Event loop only. Under `quire serve` alone (HttpServices::models).
#pragma once

#include <memory>

#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

std::unique_ptr<Call> RepositoryIndex(HttpServices& services, HttpRequest request,
                                      Exchange& exchange);
// /v2/repository/models/NAME/load and /unload; they answer when it is done.
std::unique_ptr<Call> RepositoryModel(HttpServices& services, HttpRequest request,
                                      Exchange& exchange);
std::unique_ptr<Call> Sleep(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> WakeUp(HttpServices& services, HttpRequest request, Exchange& exchange);
std::unique_ptr<Call> IsSleeping(HttpServices& services, HttpRequest request, Exchange& exchange);

}  // namespace quire
